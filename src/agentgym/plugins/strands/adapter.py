"""The Strands adapter: trains agents, which the Strands SDK runs, and exports them."""

from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec
from agentgym.core.tools import ToolSpec
from agentgym.integrations.base import Blueprint
from agentgym.integrations.episode import current_episode
from agentgym.integrations.on_client.adapter import Run, text_of
from agentgym.plugins.frameworks import ReadingAdapter

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class StrandsAdapter(ReadingAdapter):
    """Adapter for ``Agent`` of strands-agents 1.60, with agents in its tools."""

    name = "strands"
    title = "Strands"
    extra = "strands"
    agents = "an Agent of Strands"
    models = "a model of Strands"
    modules = ("strands", "openai")
    packages = ("strands",)
    inspector = "agentgym.plugins.strands.agents"
    preload = ("openai.resources", inspector)

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return a model of Strands that sends its requests with ``client``."""
        made = self.parts.StrandsModel
        return made(client=client, model_id=name)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of the framework with the schema ``spec``; it calls ``run``."""
        from strands.tools.tools import PythonAgentTool

        agents = self.parts

        async def call(tool_use: Any, **_: Any) -> Any:
            text = await run(agents.arguments_of(tool_use), tool_use["toolUseId"])
            return agents.result_of(tool_use, text)

        known: Any = {"name": spec.name, "description": spec.description}
        known["inputSchema"] = {"json": spec.parameters}
        return PythonAgentTool(spec.name, known, call)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        from strands import Agent

        prompt = settings.system_prompt or None
        given = {"name": name, "system_prompt": prompt, "tools": tools}
        return Agent(model, callback_handler=None, **given)

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent that uses ``model``, as do the agents it runs."""
        made = self.parts.copied(agent)
        made.model = model
        return made

    def begin(self, agent: Any) -> Any:
        """Return a copy of an agent, which prints nothing and saves no session."""
        return self.parts.copied(agent, quiet=True)

    async def answer(self, state: Any, asked: Any) -> str:
        """Run the agent; meanwhile, answer its interrupts."""
        result = await state.invoke_async(asked)
        while result.stop_reason == "interrupt":
            answered = []
            for each in result.interrupts:
                said = current_episode().answer_to(text_of(each.reason or each.name))
                answered.append({"interruptId": each.id, "response": said})
            given = [{"interruptResponse": each} for each in answered]
            result = await state.invoke_async(given)
        return text_of(result.structured_output or str(result).rstrip("\n"))
