"""The Google ADK adapter: trains agents, which ADK itself runs, and exports them."""

import sys
from typing import TYPE_CHECKING, Any

from agentgym.core.agent import AgentSpec
from agentgym.core.tools import ToolSpec
from agentgym.integrations.base import Blueprint
from agentgym.integrations.on_client.adapter import Run
from agentgym.plugins.frameworks import ReadingAdapter

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_APP = "agentgym"


class AdkAdapter(ReadingAdapter):
    """Adapter for agents of google-adk 2, with sub-agents and agents as tools."""

    name = "adk"
    title = "Google ADK"
    extra = "adk"
    agents = "an agent of Google ADK: an Agent, or a workflow agent of several"
    models = "a model of Google ADK"
    modules = ("google.adk", "openai")
    inspector = "agentgym.plugins.adk.agents"
    preload = ("openai.resources", inspector)

    def owns(self, root: str) -> bool:
        """Return whether a module may be one of ADK, which shares ``google``."""
        return root == "google" and "google.adk" in sys.modules

    def model(self, client: "AsyncOpenAI", name: str) -> Any:
        """Return a model of ADK that sends its requests with ``client``."""
        return self.parts.AdkLlm.on(client, name)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        """Return a tool of the framework with the schema ``spec``; it calls ``run``."""
        return self.parts.AdkTool(spec, run)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Blueprint | AgentSpec
    ) -> Any:
        """Return the default agent, which calls tools until it answers."""
        from google.adk.agents import LlmAgent

        prompt = settings.system_prompt  # a function: texts may have {variables}
        named = {"instruction": lambda _: prompt} if prompt else {}
        return LlmAgent(name=name, model=model, tools=tools, **named)

    def on_model(self, agent: Any, model: Any) -> Any:
        """Return a copy of an agent in which it and its sub-agents use ``model``."""
        made = agent.clone()
        agents = [made]
        for each in agents:  # grows
            agents += each.sub_agents
            if hasattr(each, "model"):
                each.model = model
        return made

    def begin(self, agent: Any) -> Any:
        """Return a runner of ADK and a name for the session."""
        return self.parts.runner_of(agent, _APP)

    async def answer(self, state: Any, asked: Any) -> str:
        """Run the agent on a message; return the text of its last event."""
        from google.genai import types

        sessions, known = state.session_service, {"app_name": _APP, "user_id": "user"}
        if await sessions.get_session(session_id="one", **known) is None:
            await sessions.create_session(session_id="one", **known)
        message = types.Content(role="user", parts=[types.Part(text=asked)])
        said = ""
        run = state.run_async(user_id="user", session_id="one", new_message=message)
        async for event in run:
            if event.is_final_response() and event.content is not None:
                said = "".join(x.text or "" for x in event.content.parts or ()) or said
        return said
