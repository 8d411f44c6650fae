"""An agent that reads who it serves from ``config["configurable"]``."""

from typing import Any

from langchain_core.messages import SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def loans_of(branch: str, config: RunnableConfig) -> str:
    """List what the member has borrowed in a branch."""
    return f"loans of {config['configurable']['member']} in {branch}"


model = ChatOpenAI(model="gpt-4o-mini").bind_tools([loans_of])


def assistant(state: MessagesState, config: RunnableConfig) -> Any:
    keys = config["configurable"]
    told = f"You serve {keys['member']} of {keys['town']}."
    return {"messages": [model.invoke([SystemMessage(told), *state["messages"]])]}


builder = StateGraph(MessagesState)
builder.add_node("assistant", assistant)
builder.add_node("tools", ToolNode([loans_of]))
builder.add_edge(START, "assistant")
builder.add_conditional_edges("assistant", tools_condition)
builder.add_edge("tools", "assistant")
graph = builder.compile(checkpointer=InMemorySaver())
