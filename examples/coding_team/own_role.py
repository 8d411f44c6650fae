"""A role of your own: a documenter, in a graph around the coding team's."""

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph

from agentgym.plugins.team.coding_team.graph import TeamState, build_team

PROMPT = (
    "You document code. Read the changed files, then say in two sentences what they do."
)
TOOLS = ("list_files", "read_file")


def make_agent(llm: BaseChatModel, tools: Sequence[BaseTool]) -> Any:
    """Return the team with a documenter behind it."""
    own = [tool for tool in tools if tool.name in TOOLS]
    writer = create_agent(llm, own, system_prompt=PROMPT, name="documenter")

    async def documenter(state: TeamState) -> dict[str, Any]:
        """Describe the changed files, if the team was successful."""
        if state.get("outcome") != "passed":
            return {}
        changed = ", ".join(state["facts"]["changed"])
        asked = {"messages": [HumanMessage(f"Changed: {changed}")]}
        answer = await writer.ainvoke(asked)
        return {"messages": [answer["messages"][-1]]}

    builder = StateGraph(TeamState)
    builder.add_node("team", build_team(llm, tools))
    builder.add_node("documenter", documenter)
    builder.add_edge(START, "team")
    builder.add_edge("team", "documenter")
    builder.add_edge("documenter", END)
    return builder.compile(name="documented_team")
