"""LangChain agents that crash, hang or eat memory on the tasks that say so."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph
from openai import BadRequestError

SCRIPT = "TEST_MISDEEDS"
"""Names a folder; a file there named like a task's family holds the misdeed."""


def make_agent(llm: Any, tools: list[Any]) -> Any:
    """Return a graph that may misbehave before it runs the usual agent."""
    inner = create_agent(model=llm, tools=tools, system_prompt="Help.")

    async def act(state: MessagesState) -> dict[str, Any]:
        commit(misdeed_of(str(state["messages"][-1].content)))
        return {"messages": (await inner.ainvoke(state))["messages"]}

    graph = StateGraph(MessagesState)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    return graph.compile()


def misdeed_of(instruction: str) -> str:
    """Return what the test wrote down for this instruction, empty for nothing."""
    for path in Path(os.environ[SCRIPT]).iterdir():
        wanted, _, misdeed = path.read_text().partition("\n")
        if wanted == instruction:
            return misdeed
    return ""


def commit(misdeed: str) -> None:
    """Do it."""
    if misdeed == "raise":
        raise ValueError("the agent is broken")
    if misdeed == "exit":
        os._exit(3)
    if misdeed == "block":
        time.sleep(3600)
    if misdeed == "memory":
        hoard = [bytearray(2**34) for _ in range(64)]
        assert hoard


def long_winded_agent(llm: Any, tools: list[Any]) -> Any:
    """Return a graph that first says more than the model's context holds."""
    inner = create_agent(model=llm, tools=tools, system_prompt="Help.")

    async def act(state: MessagesState) -> dict[str, Any]:
        with contextlib.suppress(BadRequestError):
            await llm.ainvoke("Well, well. " * 1000)
        return {"messages": (await inner.ainvoke(state))["messages"]}

    graph = StateGraph(MessagesState)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    return graph.compile()


def deaf_agent(llm: Any, tools: list[Any]) -> Any:
    """Return a graph that never asks its model anything."""

    def act(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("assistant", "I know better.")]}

    graph = StateGraph(MessagesState)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    return graph.compile()


def talkative_agent(llm: Any, tools: list[Any]) -> Any:
    """Return the usual agent; it and what builds it print all kinds of lines."""
    print("building the agent")  # noqa: T201
    inner = create_agent(model=llm, tools=tools, system_prompt="Help.")

    async def act(state: MessagesState) -> dict[str, Any]:
        sys.stdout.write(f"debug: \xe9\n{len(state['messages'])}\n")
        sys.stdout.write('{"blocked": "r0-000"}\n')
        os.write(1, b"\xff no text\n")
        return {"messages": (await inner.ainvoke(state))["messages"]}

    graph = StateGraph(MessagesState)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    return graph.compile()
