"""Agents whose source shows only the first of their tools."""

import json
import os
import sys
import urllib.request
from typing import Any, Literal


def _refund(order: str, amount: int = 5, **more: Any) -> str:
    """Refund an order."""
    raise AssertionError("it really ran")


def _find(name: str) -> str:
    """Find an order."""
    raise AssertionError("it really ran")


def _model() -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-4o", api_key="none")


def _agent(tool_name: str, function: Any, **more: Any) -> Any:
    from langchain.agents import create_agent
    from langchain_core.tools import tool

    return create_agent(_model(), [tool(tool_name)(function)], **more)


def _graph(*nodes: Any) -> Any:
    from langgraph.graph import MessagesState, StateGraph

    graph = StateGraph(MessagesState).add_sequence(nodes)
    return graph.set_entry_point(nodes[0].__name__).compile()


def delegating() -> Any:
    """Return a LangGraph agent; a tool of it builds another one."""
    from langchain.agents import create_agent
    from langchain_core.tools import tool

    @tool
    def ask_refunds(job: str) -> str:
        """Let the agent for refunds do a job."""
        refunds = create_agent(
            _model(), [tool("refund_order")(_refund)], name="refunds"
        )
        return str(refunds.invoke({"messages": [("user", job)]})["messages"][-1].text)

    return create_agent(_model(), [tool("find_order")(_find), ask_refunds], name="desk")


def really(order: str, amount: int = 5) -> str:
    """Refund an order."""
    return f"{amount} for {order}"


def by_hand() -> Any:
    """Return a graph whose node binds a plain function, and calls it itself."""
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import tools_condition

    def refund_order(order: str, amount: int = 5) -> str:
        """Refund an order."""
        return really(order, amount)

    def ask(state: MessagesState) -> Any:
        model = _model().bind_tools([refund_order])
        return {"messages": [model.invoke(state["messages"])]}

    def tools(state: MessagesState) -> Any:
        calls = state["messages"][-1].tool_calls  # type: ignore[union-attr]
        said = [(refund_order(**call["args"]), call["id"]) for call in calls]
        return {
            "messages": [
                {"role": "tool", "content": text, "tool_call_id": id}
                for text, id in said
            ]
        }

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", tools)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return graph.compile()


def really_in_nodes() -> Any:
    """Return a graph whose second node builds an agent with a tool that works."""
    return in_nodes(really)


def in_nodes(refund: Any = _refund) -> Any:
    """Return a graph whose second node builds its agent when it runs."""

    def ask(state: Any) -> Any:
        return {"messages": [_model().invoke(state["messages"])]}

    def act(state: Any) -> Any:
        return _agent("refund_order", refund, name="refunds").invoke(state)

    return _graph(ask, act)


def routing() -> Any:
    """Return a graph that chooses by a form which of three agents runs."""
    from pydantic import BaseModel

    class Route(BaseModel):
        to: Literal["find", "rest", "refund"]

    def act(state: Any) -> Any:
        form = _model().with_structured_output(Route)
        return _agent(f"{form.invoke(state['messages']).to}_order", _find).invoke(state)

    return _graph(act)


def by_request() -> Any:
    """Return a graph whose request decides between two tools of one name."""

    def act(state: Any) -> Any:
        is_refund = "Refund" in state["messages"][0].content
        return _agent("desk/order", _refund if is_refund else _find).invoke(state)

    return _graph(act)


REFUND = {
    "name": "refund_order",
    "parameters": {
        "type": "object",
        "properties": {
            "order": {"type": "string"},
            "amount": {"type": "integer", "default": 5},
        },
        "required": ["order"],
    },
}


def program() -> None:
    """Ask a model without tools for a plan, then one with a tool."""
    messages = [{"role": "user", "content": os.environ["AGENTGYM_TASK"]}]

    def asked(**more: Any) -> Any:
        body = json.dumps({"model": "m", "messages": messages, **more}).encode()
        url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        key = os.environ["OPENAI_API_KEY"]
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request) as response:
            return json.load(response)["choices"][0]["message"]

    messages.append(asked())
    messages.append({"role": "user", "content": "Now do it."})
    while True:
        said = asked(tools=[{"type": "function", "function": REFUND}])
        messages.append(said)
        if not said.get("tool_calls"):
            sys.stdout.write(said["content"])
            return
        for call in said["tool_calls"]:
            done = {"role": "tool", "tool_call_id": call["id"], "content": "refunded"}
            messages.append(done)


if __name__ == "__main__":
    program()
    sys.exit()
