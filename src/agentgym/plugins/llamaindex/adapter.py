"""The LlamaIndex adapter: trains agents, which LlamaIndex runs, and exports them."""

import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec
from agentgym.core.tools import ToolSpec
from agentgym.integrations.base import Blueprint
from agentgym.integrations.episode import current_episode
from agentgym.integrations.on_client.adapter import Run, text_of
from agentgym.plugins.frameworks import ReadingAdapter

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MOST = 10_000
"""Limit of an agent's steps. It exceeds an episode's limits, which end the run."""


class LlamaIndexAdapter(ReadingAdapter):
    """Adapter for ``FunctionAgent`` and ``AgentWorkflow`` of llama-index-core 0.14."""

    name = "llamaindex"
    title = "LlamaIndex"
    extra = "llamaindex"
    agents = "an agent of LlamaIndex: a FunctionAgent or an AgentWorkflow"
    models = "an LLM of LlamaIndex"
    modules = ("llama_index.core", "llama_index.llms.openai")
    packages = ("llama_index",)
    addressee = "to_agent"
    inspector = "agentgym.plugins.llamaindex.agents"
    preload = ("openai.resources", inspector)

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return an LLM of LlamaIndex that sends its requests with ``client``."""
        import_module("llama_index.core.agent.workflow")  # it is patched at its import
        return self.parts.policy_llm().on(client, name)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of the framework with the schema ``spec``; it calls ``run``."""
        from llama_index.core.tools import FunctionTool, ToolMetadata

        async def call(**arguments: Any) -> str:
            return await run(arguments, None)

        data = ToolMetadata(spec.description, spec.name, fn_schema=spec.args_model)
        return FunctionTool(async_fn=call, metadata=data)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        from llama_index.core.agent.workflow import FunctionAgent

        prompt = settings.system_prompt or None
        return FunctionAgent(name=name, system_prompt=prompt, tools=tools, llm=model)

    def members(self, agent: Any) -> dict[str, Any]:
        """Return the agents of a workflow, with their models."""
        agents = getattr(agent, "agents", {})
        return {name: each.llm for name, each in agents.items()}

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent or workflow in which all agents use ``model``."""
        made = copy.copy(agent)
        if (members := getattr(agent, "agents", None)) is None:
            made.llm = model
        else:
            made.agents = {k: self.on_model(v, model) for k, v in members.items()}
        return made

    def begin(self, agent: Any) -> Any:
        """Return a copy of an agent, and a context of LlamaIndex."""
        from llama_index.core.workflow import Context

        made = copy.copy(agent)
        made._timeout = None  # limits are turns, not time
        made.initial_state = copy.deepcopy(made.initial_state)
        return made, Context(made)

    async def answer(self, state: Any, asked: Any) -> str:
        """Run the agent; meanwhile, answer its questions to a person."""
        from llama_index.core.workflow import HumanResponseEvent, InputRequiredEvent

        agent, context = state
        message = {"user_msg" if isinstance(asked, str) else "chat_history": asked}
        run = agent.run(ctx=context, max_iterations=_MOST, **message)
        async for event in run.stream_events():
            if isinstance(event, InputRequiredEvent):
                said = current_episode().answer_to(event.get("prefix", ""))
                also = {k: v for k, v in event.items() if k != "prefix"}
                run.ctx.send_event(HumanResponseEvent(**also, response=said))
        output = await run
        return text_of(output.structured_response or output.response.content or "")
