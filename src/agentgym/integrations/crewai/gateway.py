"""GatewayLLM: CrewAI's OpenAI client for the training gateway."""

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
    """Start a new list of :func:`failures`, also for threads of this context.

    CrewAI passes a tool's exception to the model as text; exceptions that end the
    episode are in this list too. CrewAI's references to agents and events of earlier
    runs are released.
    """
    crewai_event_bus.reset_runtime_state()
    kept: list[Exception] = []
    _FAILURES.set(kept)
    return kept


def failures() -> list[Exception]:
    """Return the exceptions that ended the episode, in order."""
    return _FAILURES.get()


def counted_tokens(*_: Any, **__: Any) -> int:
    """Return 0 tokens, so that CrewAI does not shorten prompts: the server checks them.

    CrewAI would guess from the text's length and the model's name, and replace messages
    and results by summaries and files.
    """
    return 0


def role_of(agent: Any) -> str:
    """Return the role of CrewAI's current agent, or the default if unknown."""
    return str(getattr(agent, "role", DEFAULT_AGENT))


class GatewayLLM(OpenAICompletion):
    """CrewAI's ``LLM(model="openai/...")`` for the current episode."""

    _own_names: bool = PrivateAttr(default=False)

    get_input_tokens_count = counted_tokens

    @classmethod
    def of(cls, blueprint: Blueprint, *, own_names: bool = False) -> "GatewayLLM":
        """Return the model; its connections are closed by :meth:`close`.

        Args:
            blueprint: The agent's blueprint.
            own_names: Whether the agent's tools are the episode's, to be sent under
                their own names.
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
        model.is_o1_model = model.is_gpt4_model = False  # guessed from the name
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
        """Ask the model in the role of the calling agent."""
        for error in failures():
            raise error
        with speaking_as(role_of(named.get("from_agent"))):
            return super().call(*args, **named)

    async def acall(self, *args: Any, **named: Any) -> Any:
        """Ask the model in the role of the calling agent."""
        for error in failures():
            raise error
        with speaking_as(role_of(named.get("from_agent"))):
            return await super().acall(*args, **named)

    def _prepare_completion_params(self, *args: Any, **named: Any) -> dict[str, Any]:
        params: dict[str, Any] = super()._prepare_completion_params(*args, **named)
        return _with_own_names(params) if self._own_names else params

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._async_client.close()
        self._client.close()


def _with_own_names(params: dict[str, Any]) -> dict[str, Any]:
    """Return a request with the episode's tools under their own names.

    CrewAI converts all names to lower case, but only in requests: a call by a tool's
    original name finds it.
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
