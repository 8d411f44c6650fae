"""A refusal says what was seen, why that prevents training, and a command to try."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Ended

_HEAD = """
import threading
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

llm = ChatOpenAI(model="gpt-4o-mini")

@tool
def refund(order: str) -> str:
    "Refund an order."
    return f"Refunded {order}."

def one_node(node, state=MessagesState):
    graph = StateGraph(state)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph.compile()
"""
_AGENT = "agent = create_agent(llm, [refund])"
_TWO_TOOLS = """
@tool
def list_files() -> list[str]:
    "List the files."
    return []

agent = create_agent(llm, [refund, list_files])
"""
_BY_HAND = """
def node(state):
    said = llm.bind_tools([refund]).invoke(state["messages"])
    answers = [ToolMessage(refund.func(**c["args"]), tool_call_id=c["id"])
               for c in said.tool_calls]
    last = llm.invoke([*state["messages"], said, *answers])
    return {"messages": [said, *answers, last]}
agent = one_node(node)
"""
_MUTE = """
def judge(task, calls, state):
    return "sorry" in str(state)
def node(state):
    return {"messages": [llm.invoke(state["messages"])]}
agent = one_node(node)
"""


class Desk:
    """The folder of somebody's app, and the commands that they type in it."""

    def __init__(self, run: Command) -> None:
        self._run = run

    def write(self, app: str, **call: object) -> None:
        Path("desk_app.py").write_text(_HEAD + app)
        with Path("tasks.jsonl").open("w") as tasks:
            for order in (f"A{number}" for number in range(14)):
                expected = {"tool": "refund", "args": {"order": order}, **call}
                line = {"instruction": f"Refund {order}.", "expect": [expected]}
                tasks.write(f"{json.dumps(line)}\n")

    def type(self, words: str) -> Ended:
        """Run one command line as a process of its own would."""
        sys.modules.pop("desk_app", None)
        return self._run(*shlex.split(words))


@pytest.fixture
def desk(agentgym: Command, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return Desk(agentgym)


def try_next(ended: Ended, leading: str) -> str:
    """Return the words of the command that a refusal ends with."""
    assert ended.code == 1, ended.err
    *_, above, command = ended.err.splitlines()
    assert above == leading
    return command.removeprefix("    agentgym ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "words", "reason", "options"),
    [
        (_TWO_TOOLS, "coding", "no tools named refund", "--tools stub"),
        (
            _BY_HAND,
            "--tasks tasks.jsonl",
            "answered by the agent's own code, past training",
            "--tools live --allow-tool refund",
        ),
    ],
)
def test_options_that_may_do_are_in_the_command(
    desk: Desk, app: str, words: str, reason: str, options: str
) -> None:
    desk.write(app)
    refused = desk.type(f"inspect desk_app:agent {words}")
    assert reason in " ".join(refused.err.split())
    command = try_next(refused, "Try:")
    assert command == f"inspect desk_app:agent {words} {options}"
    ended = desk.type(command)
    assert "It can be trained" in ended.out, ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "call", "reason", "mended"),
    [
        (_MUTE, {}, "its model was offered no tool", _AGENT),
        (_AGENT, {"tool": "refnud"}, "Did you mean 'refund'?", _AGENT),
        (_AGENT, {"args": {"number": 1}}, "Tasks expect calls that its tools", _AGENT),
    ],
)
def test_what_has_to_change_first_is_tried_again_by_the_command(
    desk: Desk, app: str, call: dict[str, object], reason: str, mended: str
) -> None:
    desk.write(app, **call)
    words = "inspect desk_app:agent --tasks tasks.jsonl"
    refused = desk.type(words)
    assert reason in " ".join(refused.err.split())
    assert try_next(refused, "Then try again:") == words
    desk.write(mended)
    ended = desk.type(words)
    assert "It can be trained" in ended.out, ended.err


@pytest.mark.slow
def test_an_agent_of_other_tools_gets_tasks_of_its_own(desk: Desk) -> None:
    desk.write(_AGENT)
    *_, command = desk.type("inspect desk_app:agent coding").err.splitlines()
    ended = desk.type(command.removeprefix("    agentgym "))
    assert "Wrote agent_tasks.jsonl" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("app", "given", "options"),
    [
        (_BY_HAND, "--tools stub", "--tools live --allow-tool refund"),
        (_MUTE, "--check desk_app:judge", "--set train_tokens=all"),
    ],
)
def test_training_ends_with_the_same_command(
    desk: Desk, app: str, given: str, options: str
) -> None:
    desk.write(app)
    if "--check" in given:
        lines = [json.dumps({"instruction": f"Refund {n}."}) for n in range(14)]
        Path("tasks.jsonl").write_text("\n".join(lines))
    words = f"train --agent desk_app:agent --tasks tasks.jsonl {given} --dry-run"
    refused = desk.type(words)
    assert refused.code == 2
    assert "cannot be trained on tasks as it is" in " ".join(refused.err.split())
    command = refused.err.splitlines()[-1].removeprefix("    agentgym ")
    assert command == f"{words} {options}"
    assert desk.type(command).code == 0
