"""Create the team's graph for training."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool
    from langgraph.graph.state import CompiledStateGraph


def make_team(
    llm: "BaseChatModel", tools: "Sequence[BaseTool]"
) -> "CompiledStateGraph[Any, Any, Any, Any]":
    """Return the team's compiled graph, with ``llm`` as the model of all roles."""
    from agentgym.plugins.team.coding_team.team.graph import build_team

    return build_team(llm, tools)
