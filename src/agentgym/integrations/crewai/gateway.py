"""GatewayLLM: CrewAI's OpenAI model, which calls the training gateway."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from crewai.events import crewai_event_bus
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.utilities.string_utils import sanitize_tool_name
from openai import AsyncOpenAI, OpenAI
from pydantic import PrivateAttr

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.integrations.base import Blueprint
from agentgym.integrations.episode import current_episode
from agentgym.integrations.transport import (
    PLACEHOLDER,
    episode_client,
    speaking_as,
    sync_episode_client,
)

_FAILURES: ContextVar[list[Exception]] = ContextVar("agentgym_crewai_failures")


def begin() -> list[Exception]:
    """Start a new, empty list of :func:`failures` in this context, and return it.

    CrewAI shows a tool's exception to the model and continues. So exceptions that end
    the episode are also kept in this list. The function also removes CrewAI's
    references to agents and events of earlier runs, which would stay in memory.
    """
    crewai_event_bus.reset_runtime_state()
    kept: list[Exception] = []
    _FAILURES.set(kept)
    return kept


def failures() -> list[Exception]:
    """Return the exceptions that have ended the episode, in order."""
    return _FAILURES.get()


@contextmanager
def keeping_failures() -> Iterator[None]:
    """If the block raises an exception, add the exception to :func:`failures`.

    CrewAI would only show it to the model, and continue.
    """
    try:
        yield
    except Exception as error:
        failures().append(error)
        raise


def counted_tokens(*_: Any, **__: Any) -> int:
    """Return 0, so that CrewAI never shortens a prompt: the server checks the length.

    CrewAI would guess the number of tokens from the text's length and the model's name,
    and replace messages and results by summaries and files.
    """
    return 0


def role_of(agent: Any) -> str:
    """Return the ``role`` of a CrewAI agent; the default name for other objects."""
    return str(getattr(agent, "role", DEFAULT_AGENT))


class GatewayLLM(OpenAICompletion):
    """CrewAI's OpenAI model; it calls the current episode's path at the gateway."""

    _own_names: bool = PrivateAttr(default=False)

    get_input_tokens_count = counted_tokens

    @classmethod
    def of(cls, blueprint: Blueprint, *, own_names: bool = False) -> "GatewayLLM":
        """Return a model that sends its requests to the gateway.

        CrewAI writes tool names in lower case. If ``own_names`` is true, requests
        contain the exact names of the episode's tools instead.
        """
        url = blueprint.gateway + PLACEHOLDER
        model = cls(
            model=blueprint.model,
            provider="openai",
            base_url=url,
            api_key=blueprint.api_key,
            custom_openai=True,
        )
        model._own_names = own_names
        model.is_o1_model = model.is_gpt4_model = False  # CrewAI's guesses
        options: dict[str, Any] = {
            "base_url": url,
            "api_key": blueprint.api_key,
            "max_retries": 0,
        }
        sync, unsync = sync_episode_client(blueprint), episode_client(blueprint)
        model._client = OpenAI(**options, http_client=sync)
        model._async_client = AsyncOpenAI(**options, http_client=unsync)
        return model

    def call(self, *args: Any, **named: Any) -> Any:
        """Send a request with the calling agent's name, and return the model's answer.

        If an exception has ended the episode, raise that exception instead.
        """
        for error in failures():
            raise error
        with speaking_as(role_of(named.get("from_agent"))):
            return super().call(*args, **named)

    async def acall(self, *args: Any, **named: Any) -> Any:
        """Send a request, and return the model's answer, like :meth:`call`."""
        for error in failures():
            raise error
        with speaking_as(role_of(named.get("from_agent"))):
            return await super().acall(*args, **named)

    def _prepare_completion_params(self, *args: Any, **named: Any) -> dict[str, Any]:
        params: dict[str, Any] = super()._prepare_completion_params(*args, **named)
        return _with_own_names(params) if self._own_names else params

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._async_client.close()
        self._client.close()


def _with_own_names(params: dict[str, Any]) -> dict[str, Any]:
    """Return a request in which the episode's tools have their exact names.

    CrewAI writes the names in lower case, but only in requests. It finds a called tool
    by the exact name and by the lower-case name.
    """
    own = {sanitize_tool_name(name): name for name in current_episode().tools}
    if all(known_as == name for known_as, name in own.items()):
        return params

    def renamed(made: Any) -> Any:
        function = made.get("function") if isinstance(made, dict) else None
        if not isinstance(function, dict) or function.get("name") not in own:
            return made
        return {**made, "function": {**function, "name": own[function["name"]]}}

    messages = [
        {**message, "tool_calls": [*map(renamed, message["tool_calls"])]}
        if message.get("tool_calls")
        else message
        for message in params["messages"]
    ]
    return {
        **params,
        "messages": messages,
        **({"tools": [*map(renamed, params["tools"])]} if "tools" in params else {}),
    }
