"""Providers: which server answers for a model that runs somewhere else."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urldefrag

import httpx

from agentgym.errors import ModelError, NotFoundError, ProviderError, UsageError

KEY_OF_ADDRESS = "AGENTGYM_API_KEY"
"""Environment variable with the key for servers that are given by address."""

_TIMEOUT_S = 15.0
_BY_ADDRESS = (
    "Any other OpenAI-compatible server is given by its address, e.g. "
    "http://localhost:8000/v1#MODEL."
)
KEY_REFUSED = frozenset({401, 403})
"""HTTP statuses of a server that refuses the key."""
_SPEC = re.compile(r"([A-Za-z][\w.-]*):(?!//)(.*)", re.DOTALL)
_ADDRESS = re.compile(r"https?://")


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server and the model to ask it for.

    Attributes:
        base_url: What ``/chat/completions`` is below, without a slash at the end.
        api_key: Bearer key, empty if none is needed.
        model: The model's name there.
    """

    base_url: str
    api_key: str = field(repr=False)
    model: str


@dataclass(frozen=True)
class _Provider:
    base_url: str
    key: str  # environment variable


# Base URLs of OpenAI-compatible APIs. Tests call none of them.
_PROVIDERS: Mapping[str, _Provider] = {
    "anthropic": _Provider("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
    "deepseek": _Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks": _Provider(
        "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"
    ),
    "gemini": _Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"
    ),
    "groq": _Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": _Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "openai": _Provider("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": _Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": _Provider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "xai": _Provider("https://api.x.ai/v1", "XAI_API_KEY"),
}


def provider_names() -> list[str]:
    """Return the providers that are known by name."""
    return sorted(_PROVIDERS)


def is_remote(spec: str) -> bool:
    """Say whether ``spec`` names a model behind a server: ``x:y`` or an address.

    Folders, Hugging Face ids and ``nano`` hold no colon.
    """
    return _ADDRESS.match(spec) is not None or _SPEC.fullmatch(spec) is not None


def resolve_model(spec: str) -> Endpoint:
    """Return the server and model that ``spec`` names, with its key.

    Keys come from the environment: the provider's usual variable, or
    ``AGENTGYM_API_KEY`` for a server given by address, which may do without.

    Args:
        spec: ``PROVIDER:MODEL``, e.g. ``openai:gpt-4.1-mini``; or the base URL of any
            OpenAI-compatible server, ``http://host:8000/v1`` with ``#MODEL`` behind
            it. Without ``#MODEL`` the server is asked which model it has.

    Raises:
        NotFoundError: Names the nearest provider and all known ones.
        UsageError: The key or the model's name is missing.
        ModelError: The server did not say which models it has, or has several.
        ProviderError: The server refused the key.
    """
    if _ADDRESS.match(spec):
        return _by_address(spec)
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise UsageError(
            f"{spec!r} is no model of a provider; write PROVIDER:MODEL (providers: "
            f"{', '.join(provider_names())}) or an address, http://host:8000/v1#MODEL."
        )
    name, model = match[1].lower(), match[2].strip()
    provider = _PROVIDERS.get(name)
    if provider is None:
        raise NotFoundError("model provider", name, _PROVIDERS, _BY_ADDRESS)
    if not model:
        raise UsageError(f"{spec!r} names no model; write {name}:MODEL.")
    key = os.environ.get(provider.key, "").strip()
    if not key:
        raise UsageError(
            f"{spec!r} needs a key: set the environment variable {provider.key}, or "
            "put it into the file .env."
        )
    return Endpoint(provider.base_url, key, model)


def _by_address(spec: str) -> Endpoint:
    address, model = urldefrag(spec)
    base_url = address.rstrip("/")
    key = os.environ.get(KEY_OF_ADDRESS, "").strip()
    return Endpoint(base_url, key, model or _only_model(base_url, key))


def _only_model(base_url: str, key: str) -> str:
    """Ask the server for its models; there must be one.

    Raises:
        ModelError: It gave no list, or one of several or no models.
        ProviderError: It refused the key.
    """
    url = f"{base_url}/models"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        response = httpx.get(url, headers=headers, timeout=_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ModelError(
            f"The model server at {base_url} does not answer "
            f"({type(error).__name__}: {error}). Is it running, and is that its "
            "address?"
        ) from None
    if response.status_code in KEY_REFUSED:
        raise ProviderError(refusal(base_url, response.status_code, response.text))
    names = _model_names(response)
    if names is None:
        hint = "" if base_url.endswith("/v1") else f" Is it {base_url}/v1?"
        raise ModelError(
            f"{url} gave no list of models (status {response.status_code}).{hint} "
            f"Name the model yourself: {base_url}#MODEL."
        )
    if len(names) != 1:
        shown = ", ".join(names[:10]) or "none"
        raise ModelError(
            f"The server at {base_url} has {len(names)} models ({shown}); choose one: "
            f"{base_url}#MODEL."
        )
    return names[0]


def _model_names(response: httpx.Response) -> list[str] | None:
    """Return the ids in OpenAI's list of models; None if it is no such list."""
    try:
        body = response.json()
    except ValueError:
        return None
    data = body.get("data") if isinstance(body, dict) else None
    if response.status_code != 200 or not isinstance(data, list):
        return None
    found = (item.get("id") for item in data if isinstance(item, dict))
    return [name for name in found if isinstance(name, str)]


def refusal(base_url: str, status: int, said: str) -> str:
    """Return what to tell of a server that refused a key (401 or 403)."""
    variable = next(
        (p.key for p in _PROVIDERS.values() if p.base_url == base_url), KEY_OF_ADDRESS
    )
    return (
        f"The model server at {base_url} refused the key (status {status}): "
        f"{' '.join(said.split())[:200]!r}. Check the environment variable {variable}."
    )


def located_model(model: str) -> str:
    """Return what means the same model from any folder: a folder's absolute path."""
    folder = os.path.expanduser(model)
    if model == "nano" or not os.path.isdir(folder):
        return model
    return os.path.realpath(folder)
