"""CrewAI's OpenAI model on the gateway and on a trained model; AgentGym's tools."""

import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import httpx
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.tools import BaseTool
from crewai.utilities.string_utils import sanitize_tool_name
from openai import AsyncOpenAI, OpenAI
from pydantic import PrivateAttr

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import ToolSpec
from agentgym.errors import UnsupportedError
from agentgym.integrations.client_adapter import Run, run_sync
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.transport import speaking_as


def require_running() -> None:
    """Raise EpisodeCut, or the exception that ended the episode, if it is over.

    CrewAI shows a tool's exception to the model and continues.
    """
    episode = current_episode()
    if episode.crash is not None:
        raise episode.crash
    if episode.cut is not None:
        raise EpisodeCut(episode.cut.kind, episode.cut.detail)


def _counted_tokens(*_: Any, **__: Any) -> int:
    """Return 0, so that CrewAI never shortens a prompt: the server checks the length.

    CrewAI would guess the number of tokens from the text's length and the model's name,
    and replace messages and results by summaries and files.
    """
    return 0


def role_of(agent: Any) -> str:
    """Return the ``role`` of a CrewAI agent; the default name for other objects."""
    return str(getattr(agent, "role", DEFAULT_AGENT))


class PlainLLM(OpenAICompletion):
    """CrewAI's OpenAI model, without its guesses from the model's name."""

    get_input_tokens_count = _counted_tokens

    @classmethod
    def at(
        cls,
        base_url: str,
        api_key: str,
        model: str,
        http: tuple[httpx.Client, httpx.AsyncClient] | None = None,
        **options: Any,
    ) -> Self:
        """Return a model that asks a server, or the pair of clients ``http``."""
        given: dict[str, Any] = {"base_url": base_url, "api_key": api_key}
        options |= {"model": model, "provider": "openai", "custom_openai": True}
        made = cls(**given, **options)
        made.is_o1_model = made.is_gpt4_model = False
        if http is not None:
            sync, client = http
            made._client = OpenAI(**given, max_retries=0, http_client=sync)
            made._async_client = AsyncOpenAI(**given, max_retries=0, http_client=client)
        return made


class GatewayLLM(PlainLLM):
    """CrewAI's OpenAI model; it calls the current episode's path at the gateway.

    CrewAI writes tool names in lower case. Requests contain the exact names of the
    episode's tools instead.
    """

    def call(self, *args: Any, **named: Any) -> Any:
        """Send a request with the calling agent's name, and return the model's answer.

        If the episode is over, raise EpisodeCut, or the exception that has ended it.
        """
        require_running()
        with speaking_as(role_of(named.get("from_agent"))):
            return super().call(*args, **named)

    async def acall(self, *args: Any, **named: Any) -> Any:
        """Send a request, and return the model's answer, like :meth:`call`."""
        require_running()
        with speaking_as(role_of(named.get("from_agent"))):
            return await super().acall(*args, **named)

    def _prepare_completion_params(self, *args: Any, **named: Any) -> dict[str, Any]:
        params: dict[str, Any] = super()._prepare_completion_params(*args, **named)
        return _with_own_names(params)


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


def _never(arguments: Any = None, result: Any = None) -> bool:
    """Return False: CrewAI must not cache results, because they may change."""
    return False


def require_apart(names: Sequence[str]) -> None:
    """Raise UnsupportedError if two tool names are equal in lower case.

    CrewAI sends all names in lower case.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(sanitize_tool_name(name), name)
        if other != name:
            raise UnsupportedError(
                f"The tools {other!r} and {name!r} are one to CrewAI, which "
                "writes names in small letters. Rename one."
            )


class CrewSpecTool(BaseTool):
    """A tool that is known by its schema, whose arguments AgentGym checks.

    GatewayLLM sends its name unchanged; CrewAI's other models use lower case.
    """

    is_of_episode: ClassVar[bool] = True
    _call: Run = PrivateAttr()

    @classmethod
    def of(cls, spec: ToolSpec, run: Run) -> Self:
        """Return a tool with the schema ``spec`` that calls ``run``."""
        made = cls(
            name=spec.name,
            description=spec.description,
            args_schema=spec.args_model,
            cache_function=_never,
            # With a limit, the calls of one message run in order, not in parallel.
            max_usage_count=sys.maxsize,
        )
        made._call = run
        return made

    def _run(self, **arguments: Any) -> str:
        return run_sync(self._arun(**arguments))

    async def _arun(self, **arguments: Any) -> str:
        return await self._call(arguments, None)
