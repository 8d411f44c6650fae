"""GatewayLLM: CrewAI's OpenAI model, which calls the training gateway."""

from typing import Any

from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.utilities.string_utils import sanitize_tool_name
from openai import AsyncOpenAI, OpenAI

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.gateway_models import GatewayModels
from agentgym.integrations.transport import PLACEHOLDER, speaking_as


def require_running() -> None:
    """Raise EpisodeCut, or the exception that ended the episode, if it is over.

    CrewAI shows a tool's exception to the model and continues.
    """
    episode = current_episode()
    if episode.crash is not None:
        raise episode.crash
    if episode.cut is not None:
        raise EpisodeCut(episode.cut.kind, episode.cut.detail)


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

    get_input_tokens_count = counted_tokens

    @classmethod
    def of(cls, models: GatewayModels) -> "GatewayLLM":
        """Return a model that sends its requests to the gateway.

        CrewAI writes tool names in lower case. Requests contain the exact names of the
        episode's tools instead.
        """
        blueprint = models.blueprint
        url = blueprint.gateway + PLACEHOLDER
        model = cls(
            model=blueprint.model,
            provider="openai",
            base_url=url,
            api_key=blueprint.api_key,
            custom_openai=True,
        )
        model.is_o1_model = model.is_gpt4_model = False  # CrewAI's guesses
        options: dict[str, Any] = {
            "base_url": url,
            "api_key": blueprint.api_key,
            "max_retries": 0,
        }
        model._client = OpenAI(**options, http_client=models.sync_http)
        model._async_client = AsyncOpenAI(**options, http_client=models.http)
        return model

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
