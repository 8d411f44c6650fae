"""Two graphs of LangGraph's as somebody wrote them, and how they are run."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def list_files(path: str = ".") -> str:
    """List the files in a folder."""
    return "app.py\ntests/test_app.py"


model = ChatOpenAI(model="instant", temperature=0)
agent = create_agent(model, [list_files], system_prompt="Help.")

bound = model.bind_tools([list_files])


async def ask(state: MessagesState) -> dict[str, Any]:
    """Ask the model what is to be done next."""
    asked = [SystemMessage("Help."), *state["messages"]]
    return {"messages": [await bound.ainvoke(asked)]}


builder = StateGraph(MessagesState)
builder.add_node("ask", ask)
builder.add_node("tools", ToolNode([list_files]))
builder.add_edge(START, "ask")
builder.add_conditional_edges("ask", tools_condition)
builder.add_edge("tools", "ask")
graph = builder.compile()

ASKED = {"messages": [("user", "List the files.")]}


async def run() -> Any:
    """Run an agent as LangChain does."""
    return await agent.ainvoke(ASKED)


async def run_graph() -> Any:
    """Run a graph as LangGraph does."""
    return await graph.ainvoke(ASKED)


RUNS = {"langchain": run, "langchain-graph": run_graph}
