"""Redirect chat completions of OpenAI clients in an agent's code to the gateway.

The patched method and httpx's mounts are not public: a test fails when a new version
changes them.
"""

import functools
import threading
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from agentgym.errors import UnsupportedError
from agentgym.integrations.base import Blueprint
from agentgym.integrations.episode import current_episode
from agentgym.integrations.redirect import holding, refuse_calls

if TYPE_CHECKING:
    import httpx

_CHAT = "/chat/completions"
_OTHER_APIS = ("/responses", "/completions")
_GATEWAY: ContextVar[Blueprint | None] = ContextVar("agentgym_gateway", default=None)
_BUILDING = threading.Lock()


def clients_redirected_to(blueprint: Blueprint) -> AbstractContextManager[None]:
    """Send the chat completions of all OpenAI clients in the block to the gateway."""
    return holding(_GATEWAY, blueprint)


def patch_clients(module: ModuleType) -> None:
    """Patch OpenAI's clients, so that :func:`clients_redirected_to` works."""
    build = module.BaseClient._build_request

    def _build_request(
        self: Any, options: Any, *, retries_taken: int = 0
    ) -> "httpx.Request":
        refuse_calls()
        build_models()
        request = build(self, options, retries_taken=retries_taken)
        if (blueprint := _GATEWAY.get()) is not None:
            _redirect(request, blueprint, is_first=retries_taken == 0)
            _reach_without_proxy(self._client, request.url)
        built: httpx.Request = request
        return built

    module.BaseClient._build_request = _build_request


def build_models() -> None:
    """Build the pydantic models of OpenAI's chat completions, once.

    The package builds each model at the first answer of its type. If two threads get
    their first answers at the same time, one thread would use a half-built model and
    fail with "BaseModel cannot be instantiated directly".
    """
    with _BUILDING:
        _build_models_once()


@functools.cache
def _build_models_once() -> None:
    from openai import BaseModel
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    seen: set[Any] = set()
    left: list[Any] = [ChatCompletion, ChatCompletionChunk]
    while left:
        kind = left.pop()
        if kind in seen:
            continue
        seen.add(kind)
        left += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind.model_rebuild()
            left += (field.annotation for field in kind.model_fields.values())
            left += kind.__bases__


def _reach_without_proxy(client: Any, url: "httpx.URL") -> None:
    """Let an httpx client ask the gateway's URL directly, not through a proxy."""
    from httpx._utils import URLPattern

    if client._transport_for_url(url) is not client._transport:
        pattern = URLPattern(f"all://{url.netloc.decode()}")
        client._mounts = {pattern: None, **client._mounts}


def _redirect(
    request: "httpx.Request", blueprint: Blueprint, *, is_first: bool
) -> None:
    if str(request.url).startswith(blueprint.gateway):
        return  # AgentGym's own clients count their calls themselves
    path = request.url.path
    if path.endswith(_CHAT):
        episode = current_episode()
        if is_first:
            episode.begin_turn()
            episode.answered += 1  # counted now: the answer is not visible
        request.url = type(request.url)(f"{blueprint.gateway}{episode.path}{_CHAT}")
        request.headers["Host"] = request.url.netloc.decode()
        request.headers["Authorization"] = f"Bearer {blueprint.api_key}"
    elif path.endswith(_OTHER_APIS):
        raise UnsupportedError(
            f"The agent asks its model through {path}, and training has chat "
            "completions: use chat.completions.create, or use_responses_api=False."
        )
