"""Read LlamaIndex's agents, and redirect their models and tools in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Some of the patched methods are not public: a test fails when a
new version of LlamaIndex changes them.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, wraps
from typing import Any, Self

from llama_index.core.agent.workflow import (
    AgentWorkflow,
    BaseWorkflowAgent,
    CodeActAgent,
    FunctionAgent,
    ReActAgent,
)
from llama_index.core.base.llms.types import LLMMetadata, ToolCallBlock
from llama_index.core.llms import LLM
from llama_index.core.tools import (
    BaseTool,
    FunctionTool,
    ToolMetadata,
    ToolOutput,
    adapt_to_async_tool,
)
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
)

from agentgym.core.tools import ToolSpec, parse_arguments
from agentgym.integrations.client_adapter import (
    UNREADABLE,
    ClientConversation,
    ClientFramework,
    Run,
    Settings,
    asking,
    spec_of,
    text_of,
)
from agentgym.integrations.episode import current_episode, episode_or_none
from agentgym.integrations.in_place import called
from agentgym.integrations.plain_openai import sync_client
from agentgym.integrations.redirect import model_for, patch_methods, replace_calls
from agentgym.integrations.transport import speaking_as

_NAME = "llamaindex"
_ASKING = tuple(
    f"{prefix}{name}"
    for name in ("chat", "complete", "chat_with_tools", "structured_predict")
    for prefix in ("", "a", "stream_", "astream_")
)
_MOST = 10_000
"""Limit of an agent's steps. It exceeds an episode's limits, which end the run."""
_CONTEXT = 1_000_000
"""Tokens after which LlamaIndex's memory drops messages; the server has a limit."""


@cache
def _policy_llm() -> Any:
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
                    call.tool_kwargs = {UNREADABLE: text}
            return found

    return PolicyLLM


def _described(metadata: Any) -> Any:
    """Let a replaced model describe the other one: some ask their server for it."""

    def routed(self: Any) -> Any:
        other = model_for(_NAME, is_call=False, instead=self)
        if other is None or isinstance(self, type(other)):
            return metadata.fget(self)
        return other.metadata

    return property(routed)


def _within(
    enter: Callable[[Any], AbstractContextManager[None]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a patch of an async method: it runs within ``enter`` of its object."""

    def patch(method: Callable[..., Any]) -> Callable[..., Any]:
        async def routed(self: Any, *args: Any, **named: Any) -> Any:
            with enter(self):
                return await method(self, *args, **named)

        return wraps(method)(routed)

    return patch


def _as_role(agent: Any) -> AbstractContextManager[None]:
    if episode_or_none() is not None:
        FRAMEWORK.refuse_by_text(agent)
    return speaking_as(agent.name)


def _asking(team: Any) -> AbstractContextManager[None]:
    """Let agents that a tool runs use the trained model of the agent with the tool."""
    agent = next(iter(getattr(team, "agents", {"": team}).values()))
    return asking(_NAME, agent.llm, _policy_llm())


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
            given.get(UNREADABLE, given),
            lambda _: acall(self, *args, **named),
            lambda: name == "handoff" or FRAMEWORK.passes_control(self),
            answer=answer,
            read=lambda output: output.content,
        )

    return routed


class _Conversation(ClientConversation):
    async def answer(self, asked: Any) -> str:
        """Run the agent; meanwhile, answer its questions to a person."""
        agent, context = self._state
        message = {"user_msg" if isinstance(asked, str) else "chat_history": asked}
        run = agent.run(ctx=context, max_iterations=_MOST, **message)
        async for event in run.stream_events():
            if isinstance(event, InputRequiredEvent):
                said = current_episode().answer_to(event.get("prefix", ""))
                also = {k: v for k, v in event.items() if k != "prefix"}
                run.ctx.send_event(HumanResponseEvent(**also, response=said))
        output = await run
        return text_of(output.structured_response or output.response.content or "")


class _LlamaIndexFramework(ClientFramework):
    """Agents, tools and models of LlamaIndex."""

    AGENTS, TOOLS, MODEL = (BaseWorkflowAgent, AgentWorkflow), BaseTool, LLM
    BY_TEXT, INSTEAD = (CodeActAgent, ReActAgent), "FunctionAgent"
    conversation = _Conversation

    def patch(self) -> None:
        replace_calls(LLM, (*_ASKING, "get_tool_calls_from_response"), _NAME)
        patch_methods(LLM, ("metadata",), _described)
        patch_methods(BaseWorkflowAgent, ("take_step",), _within(_as_role))
        for kind in (BaseWorkflowAgent, AgentWorkflow):
            patch_methods(kind, ("_call_tool",), _within(_asking))
        patch_methods(BaseTool, ("acall",), _calling)

    def model(self, client: Any, name: str) -> Any:
        return _policy_llm().on(client, name)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        async def call(**arguments: Any) -> str:
            return await run(arguments, None)

        data = ToolMetadata(spec.description, spec.name, fn_schema=spec.args_model)
        return FunctionTool(async_fn=call, metadata=data)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        prompt = settings.system_prompt or None
        return FunctionAgent(name=name, system_prompt=prompt, tools=tools, llm=model)

    def members(self, agent: Any) -> dict[str, Any]:
        agents = getattr(agent, "agents", {})
        return {name: each.llm for name, each in agents.items()}

    def on_model(self, agent: Any, model: Any) -> Any:
        made = copy.copy(agent)
        if (members := getattr(agent, "agents", None)) is None:
            made.llm = model
        else:
            made.agents = {k: self.on_model(v, model) for k, v in members.items()}
        return made

    def begin(self, agent: Any) -> Any:
        """Return a copy of an agent, and a context of LlamaIndex."""
        made = copy.copy(agent)
        made._timeout = None  # limits are turns, not time
        made.initial_state = copy.deepcopy(made.initial_state)
        return made, Context(made)

    def function(self, tool: Any) -> Any:
        return getattr(tool, "_real_fn", None)

    def spec(self, tool: Any) -> ToolSpec:
        data = tool.metadata
        read = None if data.fn_schema is None else data.fn_schema.model_validate
        schema = data.get_parameters_dict()
        return spec_of(data.get_name(), data.description, schema, read)

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        return (await adapt_to_async_tool(tool).acall(**arguments)).content


FRAMEWORK = _LlamaIndexFramework()
