"""The state that all roles share."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.graph.message import add_messages


class ReviewFinding(TypedDict):
    """A problem in the code.

    Attributes:
        path: The file.
        line: From 1.
        severity: ``high``, ``medium`` or ``low``.
        message: The problem in a sentence, with the rule that it breaks.
    """

    path: str
    line: int
    severity: str
    message: str


class TestReport(TypedDict):
    """The result of the last test run.

    Attributes:
        passed: How many tests passed.
        failed: How many did not.
        failures: ``name: message`` of each test that did not pass.
    """

    __test__ = False  # type: ignore[misc]

    passed: int
    failed: int
    failures: list[str]


class Turn(TypedDict):
    """One entry of the history.

    Attributes:
        role: The role that had the turn.
        round: The round it belongs to, from 1.
        did: The result in a few words.
        said: The role's last message; empty if there is none.
    """

    role: str
    round: int
    did: str
    said: str


class TeamState(TypedDict, total=False):
    """The state of the team's graph.

    Attributes:
        messages: The conversation with the user: the request, and the final answer.
        problem: The request in words.
        files: Relative path to text.
        findings: Of the reviews since the last edit.
        tests: The last test run since the last edit; None if there was none.
        history: Every turn so far.
        facts: Short facts that decide the routing; see ``routing.next_roles``.
        note: Advice for the next role, from the supervisor or a person.
        question: The question that waits for a person; None if there is none.
        outcome: ``passed``, ``failed``, ``untested`` or ``stopped`` at the end.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    problem: str
    files: dict[str, str]
    findings: list[ReviewFinding]
    tests: TestReport | None
    history: Annotated[list[Turn], operator.add]
    facts: dict[str, Any]
    note: str
    question: dict[str, Any] | None
    outcome: str
