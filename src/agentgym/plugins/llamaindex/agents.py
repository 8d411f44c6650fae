"""Read LlamaIndex's agents, and redirect their models and tools in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Some of the patched methods are not public: a test fails when a
new version of LlamaIndex changes them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, wraps
from typing import Any, Self

from llama_index.core.agent.workflow import (
    AgentWorkflow,
    BaseWorkflowAgent,
    CodeActAgent,
    ReActAgent,
)
from llama_index.core.base.llms.types import LLMMetadata, ToolCallBlock
from llama_index.core.llms import LLM
from llama_index.core.tools import BaseTool, ToolOutput, adapt_to_async_tool

from agentgym.core.tools import ToolSpec, parse_arguments
from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.on_client.in_place import called
from agentgym.integrations.redirect import model_for, patch_methods, replace_calls
from agentgym.integrations.transport import speaking_as
from agentgym.plugins.frameworks import (
    Reader,
    asking,
    spec_of,
    sync_client,
    within,
)

_NAME = "llamaindex"
_ASKING = tuple(
    f"{prefix}{name}"
    for name in ("chat", "complete", "chat_with_tools", "structured_predict")
    for prefix in ("", "a", "stream_", "astream_")
)
_UNREADABLE = "__arguments__"
"""Key of the arguments of a call that are not a JSON object, with their text."""
_CONTEXT = 1_000_000
"""Tokens after which LlamaIndex's memory drops messages; the server has a limit."""


@cache
def policy_llm() -> Any:
    """Return the class of the policy's model."""
    # Its import may be the one that imports LlamaIndex and so this module.
    from llama_index.llms.openai import OpenAI

    class PolicyLLM(OpenAI):
        """LlamaIndex's OpenAI model, without its guesses from the model's name."""

        @classmethod
        def on(cls, client: Any, name: str) -> Self:
            """Return a model that sends its requests with ``client``."""
            made = cls(name, api_key=client.api_key, max_retries=0)
            made._client, made._aclient = sync_client(client), client
            return made

        @property
        def metadata(self) -> LLMMetadata:
            """The abilities of the policy, in LlamaIndex's format."""
            able = {"is_chat_model": True, "is_function_calling_model": True}
            return LLMMetadata(context_window=_CONTEXT, model_name=self.model, **able)

        def _get_model_kwargs(self, **kwargs: Any) -> dict[str, Any]:
            made = super()._get_model_kwargs(**kwargs)
            made["temperature"] = kwargs.get("temperature")  # not LlamaIndex's default
            return {key: made[key] for key in made if made[key] is not None}

        def get_tool_calls_from_response(
            self, response: Any, *args: Any, **named: Any
        ) -> Any:
            """Return the calls; arguments that are not JSON stand below one key."""
            found = super().get_tool_calls_from_response(response, *args, **named)
            blocks = response.message.blocks
            written = [x.tool_kwargs for x in blocks if isinstance(x, ToolCallBlock)]
            for call, text in zip(found, written, strict=False):
                if isinstance(text, str) and parse_arguments(text) is None:
                    call.tool_kwargs = {_UNREADABLE: text}
            return found

    return PolicyLLM


class LlamaIndexReader(Reader):
    """Reads agents and workflows of LlamaIndex."""

    AGENTS, TOOLS, MODEL = (BaseWorkflowAgent, AgentWorkflow), BaseTool, LLM
    BY_TEXT, INSTEAD = (CodeActAgent, ReActAgent), "FunctionAgent"

    def function(self, tool: Any) -> Any:
        """Return the function of a FunctionTool."""
        return getattr(tool, "_real_fn", None)

    def spec(self, tool: Any) -> ToolSpec:
        """Return a tool's name, description and schema."""
        data = tool.metadata
        read = None if data.fn_schema is None else data.fn_schema.model_validate
        schema = data.get_parameters_dict()
        return spec_of(data.get_name(), data.description, schema, read)

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        """Run a tool; one that takes its run's context runs only in place."""
        return (await adapt_to_async_tool(tool).acall(**arguments)).content


READER = LlamaIndexReader()


def patch() -> None:
    """Patch LLMs, so that one can replace the others, agents, and their tools."""
    replace_calls(LLM, (*_ASKING, "get_tool_calls_from_response"), _NAME)
    patch_methods(LLM, ("metadata",), _described)
    patch_methods(BaseWorkflowAgent, ("take_step",), within(_as_role))
    for kind in (BaseWorkflowAgent, AgentWorkflow):
        patch_methods(kind, ("_call_tool",), within(_asking))
    patch_methods(BaseTool, ("acall",), _calling)


def _described(metadata: Any) -> Any:
    """Let a replaced model describe the other one: some ask their server for it."""

    def routed(self: Any) -> Any:
        other = model_for(_NAME, is_call=False, instead=self)
        if other is None or isinstance(self, type(other)):
            return metadata.fget(self)
        return other.metadata

    return property(routed)


def _as_role(agent: Any) -> AbstractContextManager[None]:
    if episode_or_none() is not None:
        READER.refuse_by_text(agent)
    return speaking_as(agent.name)


def _asking(team: Any) -> AbstractContextManager[None]:
    """Let agents that a tool runs use the trained model of the agent with the tool."""
    agent = next(iter(getattr(team, "agents", {"": team}).values()))
    return asking(_NAME, agent.llm, policy_llm())


def _calling(acall: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(acall)
    async def routed(self: Any, *args: Any, **named: Any) -> Any:
        name, known = self.metadata.get_name(), self.metadata.get_parameters_dict()
        given = dict(zip(known.get("properties", ()), args, strict=False))
        context = getattr(self, "ctx_param_name", None)
        given |= {key: named[key] for key in named if key != context}

        def answer(text: str) -> Any:
            failed = text.startswith("Error:")
            shown = {"raw_input": given, "raw_output": text, "is_error": failed}
            return ToolOutput(content=text, tool_name=name, **shown)

        return await called(
            name,
            given.get(_UNREADABLE, given),
            lambda _: acall(self, *args, **named),
            lambda: name == "handoff" or READER.passes_control(self),
            answer=answer,
            read=lambda output: output.content,
        )

    return routed
