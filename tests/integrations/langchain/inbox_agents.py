"""Agents that wait for a person, or reach other machines by their own code."""

import socket
from contextlib import suppress
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.graph import MessagesState
from langgraph.types import interrupt

from tests.integrations.langchain.live_agents import TOOLS, ask, build

_BY_NAME = {tool.name: tool for tool in TOOLS}


def _run(call: dict[str, Any]) -> ToolMessage:
    made: ToolMessage = _BY_NAME[call["name"]].invoke({**call, "type": "tool_call"})
    return made


def _by_decision(state: MessagesState) -> dict[str, Any]:
    call = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]
    decision = interrupt({"type": "loan", "draft": call["args"]})
    if decision.get("approved"):
        return {"messages": [_run(call)]}
    return {"messages": [ToolMessage("declined", tool_call_id=call["id"])]}


def _by_inbox(state: MessagesState) -> dict[str, Any]:
    call = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]
    asks = call["name"] == "find_book"
    request = {
        "action_request": {"action": call["name"], "args": call["args"]},
        "config": {"allow_accept": not asks, "allow_respond": asks},
        "description": "May I?",
    }
    reply = interrupt([request])[0]
    if asks != (reply["type"] == "response"):
        raise ValueError(f"Invalid response: {reply}")
    said = ToolMessage(reply["args"], tool_call_id=call["id"]) if asks else _run(call)
    return {"messages": [said]}


def approve(question: Any) -> dict[str, Any]:
    """Answer as the agent's front end does."""
    return {"approved": question["type"] == "loan"}


by_decision = build(ask, tools=_by_decision)
by_inbox = build(ask, tools=_by_inbox)


def _download(state: MessagesState) -> dict[str, Any]:
    with suppress(socket.gaierror):  # where it is allowed, it is looked up
        socket.getaddrinfo("files.invalid", 443)
    return ask(state)


downloading = build(_download)
