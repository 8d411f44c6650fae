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


def delegating() -> Any:
    """Return a LangGraph agent; a tool of it builds another one."""
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    def refunds() -> Any:
        model = ChatOpenAI(model="gpt-4o", api_key="none")
        return create_agent(model, [tool("refund_order")(_refund)], name="refunds")

    @tool
    def ask_refunds(job: str) -> str:
        """Let the agent for refunds do a job."""
        return str(refunds().invoke({"messages": [("user", job)]})["messages"][-1].text)

    tools = [tool("find_order")(_find), ask_refunds]
    return create_agent(ChatOpenAI(model="gpt-4o", api_key="none"), tools, name="desk")


def really(order: str, amount: int = 5) -> str:
    """Refund an order."""
    return f"{amount} for {order}"


def by_hand() -> Any:
    """Return a graph whose node binds a plain function, and calls it itself."""
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import tools_condition

    def refund_order(order: str, amount: int = 5) -> str:
        """Refund an order."""
        return really(order, amount)

    def ask(state: MessagesState) -> Any:
        model = ChatOpenAI(model="gpt-4o", api_key="none").bind_tools([refund_order])
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
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph

    def ask(state: MessagesState) -> Any:
        model = ChatOpenAI(model="gpt-4o", api_key="none")
        return {"messages": [model.invoke(state["messages"])]}

    def act(state: MessagesState) -> Any:
        model = ChatOpenAI(model="gpt-4o", api_key="none")
        agent = create_agent(model, [tool("refund_order")(refund)], name="refunds")
        return agent.invoke({"messages": state["messages"]})

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("act", act)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "act")
    return graph.compile()


def routing() -> Any:
    """Return a graph that chooses by a form which of three agents runs."""
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import START, MessagesState, StateGraph
    from pydantic import BaseModel

    class Route(BaseModel):
        to: Literal["find", "rest", "refund"]

    named = {"find": "find_order", "rest": "rest_order", "refund": "refund_order"}

    def act(state: MessagesState) -> Any:
        model = ChatOpenAI(model="gpt-4o", api_key="none")
        route: Any = model.with_structured_output(Route).invoke(state["messages"])
        agent = create_agent(model, [tool(named[route.to])(_find)])
        return agent.invoke({"messages": state["messages"]})

    graph = StateGraph(MessagesState)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    return graph.compile()


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
