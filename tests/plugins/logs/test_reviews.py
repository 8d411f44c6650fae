"""A person's decisions on an agent's calls become the lines of a tasks file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym import record_review
from agentgym.core.tools import as_tools
from agentgym.errors import UsageError
from agentgym.plugins.logs import from_logs
from agentgym.scenarios.tool_tasks.task_file import read_task_lines

ASKED = "Refund order 7, it came broken."
REFUND = {"order": 7, "euros": 90}
RIGHT = {"order": 7, "euros": 30}
APPROVE: dict[str, Any] = {"type": "approve"}
REJECT: dict[str, Any] = {"type": "reject", "message": "never"}
EDIT = {"type": "edit", "edited_action": {"name": "refund", "args": RIGHT}}


def refund(order: int, euros: int) -> str:
    """Pay money back."""
    return f"refunded {euros} for {order}"


def close_account(customer: str) -> str:
    """Close a customer's account."""
    return "closed"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "reviews.jsonl"


def review(log: Path, *decided: tuple[str, dict[str, Any], Any]) -> None:
    requests = [{"name": name, "args": args} for name, args, _ in decided]
    messages = [{"role": "user", "content": ASKED}]
    response = {"decisions": [decision for *_, decision in decided]}
    record_review(log, messages, {"action_requests": requests}, response)


def lines(log: Path, **options: Any) -> list[dict[str, Any]]:
    text = from_logs(log, **options).text
    return [json.loads(line) for line in text.splitlines() if line[:1] != "#"]


def test_each_decision_is_what_should_have_been_done(log: Path) -> None:
    review(log, ("refund", REFUND, EDIT), ("close_account", {"customer": "x"}, REJECT))
    tools = as_tools([refund, close_account], "TOOLS")
    (line,) = lines(log, tools=tools)
    expect = [{"tool": "refund", "args": RIGHT}]
    assert line == {"instruction": ASKED, "expect": expect, "forbid": ["close_account"]}

    tasks = log.with_name("tasks.jsonl")
    tasks.write_text(json.dumps(line) + "\n")
    specs = {tool.spec.name: tool.spec for tool in tools}
    (read,) = read_task_lines(tasks, specs, checked=False)
    assert read.forbid == {"close_account"}


def test_reviews_of_one_request_are_one_task(log: Path) -> None:
    review(log, ("refund", REFUND, REJECT))
    review(log, ("refund", RIGHT, APPROVE))
    (line,) = lines(log)
    assert line["expect"] == [{"tool": "refund", "args": RIGHT}]
    assert "forbid" not in line  # its right call is another of the same tool


def test_a_person_who_answers_for_the_tool_gives_its_answer(log: Path) -> None:
    review(log, ("refund", RIGHT, {"type": "respond", "message": "done by hand"}))
    (line,) = lines(log)
    needed = {"tool": "refund", "args": RIGHT, "answer": "done by hand"}
    assert line["expect"] == [needed]


@pytest.mark.parametrize(
    ("request_", "response", "why"),
    [
        ({"question": "go on?"}, APPROVE, "not lists of tool calls"),
        ({"name": "refund", "args": REFUND}, {"decisions": []}, "0 decided"),
        ({"name": "refund", "args": REFUND}, {"type": "maybe"}, "is none of approve"),
        ({"name": "refund", "args": REFUND}, {"type": "edit"}, "no name and args"),
    ],
)
def test_what_is_no_review_is_refused_where_it_is_recorded(
    log: Path, request_: Any, response: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        record_review(log, [("user", ASKED)], request_, response)
    assert not log.exists()


def logged(log: Path, *results: tuple[str, dict[str, Any], str]) -> None:
    """Write the conversation of an agent with the middleware, as a log has it."""
    calls = [
        {"id": f"c{n}", "function": {"name": name, "arguments": json.dumps(args)}}
        for n, (name, args, _) in enumerate(results)
    ]
    messages = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *(
            {"role": "tool", "tool_call_id": f"c{n}", "content": text}
            for n, (*_, text) in enumerate(results)
        ),
    ]
    log.write_text(json.dumps({"messages": messages}))


NOTICE = (
    "A reviewer replaced this call. Executed instead: refund with arguments "
    '{"order": 7, "euros": 30}.'
)
REJECTED = "User rejected the tool call for `close_account` with reason: never"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (f"{NOTICE}\n\nTool response:\nrefunded 30", {"answer": "refunded 30"}),
        (NOTICE, {}),
    ],
)
def test_decisions_that_results_in_a_log_show_are_followed(
    log: Path, said: str, answer: dict[str, str]
) -> None:
    closing = ("close_account", {"customer": "x"}, REJECTED)
    logged(log, ("refund", REFUND, said), closing)
    (line,) = lines(log, reviewed=True)
    assert line["expect"] == [{"tool": "refund", "args": RIGHT, **answer}]
    assert line["forbid"] == ["close_account"]
    assert from_logs(log).decisions == {"edit": 1, "reject": 1}


@pytest.mark.parametrize(
    "said", ["Executed instead: refund with arguments {", "Executed instead: x", "ok"]
)
def test_a_result_that_shows_no_decision_is_an_answer(log: Path, said: str) -> None:
    logged(log, ("refund", REFUND, said))
    (line,) = lines(log)
    assert line["expect"] == [{"tool": "refund", "args": REFUND, "answer": said}]
    with pytest.raises(UsageError, match="no reviewer decided on its calls"):
        from_logs(log, reviewed=True)


def test_only_rejected_calls_make_no_task(log: Path) -> None:
    told = "the right one is not known: write it yours"
    review(log, ("refund", REFUND, REJECT))
    with pytest.raises(UsageError, match=told):
        from_logs(log)
    logged(log, ("close_account", {"customer": "x"}, REJECTED))
    with pytest.raises(UsageError, match=told):
        from_logs(log)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_interrupts_of_langchain_are_recorded_as_they_come(
    log: Path, mode: Any
) -> None:
    """Slow: it imports LangChain's agents."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
            return self

    def answers() -> Iterator[AIMessage]:
        call = {"name": "refund", "args": REFUND, "id": "call_1", "type": "tool_call"}
        yield AIMessage("", tool_calls=[call])
        yield AIMessage("Refunded.")

    middleware = HumanInTheLoopMiddleware({"refund": True}, interrupt_mode=mode)
    graph = create_agent(
        Scripted(messages=answers()),
        [refund],
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [("user", ASKED)]}, config)
    state = graph.get_state(config)
    [asked] = state.interrupts
    response = {"decisions": [EDIT]} if mode == "batched" else EDIT
    record_review(log, state.values["messages"], asked, response)
    done = graph.invoke(Command(resume=response), config)

    assert "refunded 30 for 7" in done["messages"][-2].content
    assert lines(log, tools=as_tools([refund], "TOOLS")) == [
        {"instruction": ASKED, "expect": [{"tool": "refund", "args": RIGHT}]}
    ]
    said = [message.model_dump(mode="json") for message in done["messages"]]
    log.write_text(json.dumps({"messages": said}))
    needed = {"tool": "refund", "args": RIGHT, "answer": "refunded 30 for 7"}
    assert lines(log, reviewed=True) == [{"instruction": ASKED, "expect": [needed]}]
