"""The framework ``plain``: an agent is a loop of requests and tool calls."""

from typing import Any

from agentgym.core.agent import Trained
from agentgym.integrations.base import (
    AgentLoop,
    Blueprint,
    Conversation,
    FrameworkAdapter,
)
from agentgym.integrations.episode import current_episode
from agentgym.integrations.transport import PLACEHOLDER, episode_client


class PlainAdapter(FrameworkAdapter):
    """Builds the agent, and gives the trained one back as its settings."""

    name = "plain"

    def check(self) -> None:
        """Do nothing: it needs no other package."""

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Return the agent of a blueprint, which answers many episodes."""
        return PlainLoop(blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Return what an application needs to ask the trained model."""
        return {"system": trained.spec.system_prompt, **options}


class PlainLoop(AgentLoop, Conversation):
    """Asks the model until it answers without a tool call."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.client = episode_client(blueprint)
        self.url = f"{blueprint.gateway}{PLACEHOLDER}/chat/completions"

    def converse(self) -> Conversation:
        """Return the conversation of an episode: this object has no state of it."""
        return self

    async def turn(self, message: str) -> str:
        """Return the agent's answer to a message of the user."""
        episode = current_episode()
        key = {"Authorization": f"Bearer {self.blueprint.api_key}"}
        said: list[dict[str, Any]] = [
            {"role": "system", "content": self.blueprint.system_prompt},
            {"role": "user", "content": message},
        ]
        tools = [tool.to_openai() for tool in episode.task_tools]
        while True:
            body = {"messages": said, "tools": tools}
            reply = await self.client.post(self.url, json=body, headers=key)
            said.append(reply.json()["choices"][0]["message"])
            calls = said[-1].get("tool_calls") or []
            if not calls:
                return said[-1]["content"] or ""
            for call in calls:
                asked = call["function"]
                result = await episode.use_tool(
                    asked["name"], asked["arguments"], call_id=call["id"]
                )
                said.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": result}
                )
