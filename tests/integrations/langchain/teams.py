"""Teams as users of LangChain and LangGraph write them."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph


def make_supervisor(llm: Any, tools: list[Any]) -> Any:
    """Return a supervisor that has a sub-agent as its only tool."""
    worker = create_agent(llm, tools, system_prompt="You calculate.", name="worker")

    @tool
    async def ask_worker(job: str) -> str:
        """Let the worker do a job."""
        done = await worker.ainvoke({"messages": [("user", job)]})
        return str(done["messages"][-1].text)

    prompt = "You hand out work."
    return create_agent(llm, [ask_worker], system_prompt=prompt, name="supervisor")


def make_graph(llm: Any, tools: list[Any]) -> Any:
    """Return a graph of a node that plans, an unnamed agent, and a sync critic."""

    async def plan(state: MessagesState) -> dict[str, Any]:
        pieces = [piece async for piece in llm.astream(state["messages"])]
        return {"messages": [("user", "".join(piece.text for piece in pieces))]}

    def judge(state: MessagesState) -> dict[str, Any]:
        return {"messages": [llm.invoke([("user", "Judge.")])]}

    graph = StateGraph(MessagesState)
    graph.add_node("planner", plan)
    graph.add_node("worker", create_agent(llm, tools, system_prompt="You calculate."))
    graph.add_node("critic", judge)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "worker")
    graph.add_edge("worker", "critic")
    return graph.compile()


def make_chat(llm: Any, tools: list[Any]) -> Any:
    """Return what is no team."""
    return create_agent(llm, tools, system_prompt="You calculate.")
