"""An agent and a team of AutoGen's as somebody wrote them, and how they are run."""

from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient


def list_files(path: str = ".") -> str:
    """List the files in a folder."""
    return "app.py\ntests/test_app.py"


client = OpenAIChatCompletionClient(
    model="instant",
    model_info={
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "family": "unknown",
        "structured_output": False,
    },
)


def make() -> AssistantAgent:
    """Return a new agent."""
    return AssistantAgent(
        "clerk",
        client,
        tools=[list_files],
        system_message="Help.",
        max_tool_iterations=9,
    )


def make_team() -> RoundRobinGroupChat:
    """Return a new team, in which one speaks."""
    return RoundRobinGroupChat([make()], max_turns=1)


agent = make()
team = make_team()


async def run() -> Any:
    """Run an agent as AutoGen does."""
    return await make().run(task="List the files.")


async def run_team() -> Any:
    """Run a team as AutoGen does."""
    return await make_team().run(task="List the files.")


RUNS = {"autogen": run, "autogen-team": run_team}
