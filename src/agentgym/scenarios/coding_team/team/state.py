"""The state that all roles share."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.graph.message import add_messages


class ReviewFinding(TypedDict):
    """A problem in the code.

    Attributes:
        path: The file.
        line: Line number, from 1.
        severity: ``high``, ``medium`` or ``low``.
        message: Description of the problem, with the broken rule.
    """

    path: str
    line: int
    severity: str
    message: str


class TestReport(TypedDict):
    """The result of the last test run.

    Attributes:
        passed: Number of passed tests.
        failed: Number of tests that did not pass.
        failures: ``name: message`` of each test that did not pass.
    """

    __test__ = False  # type: ignore[misc]

    passed: int
    failed: int
    failures: list[str]


class Turn(TypedDict):
    """One entry of the history.

    Attributes:
        role: Name of the role.
        round: Number of turns of the generator so far.
        did: Summary of the result.
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
        problem: The user's last request, as text.
        files: Text of each file, by relative path.
        findings: Findings of the reviews since the last edit.
        tests: Result of the last test run since the last edit, or None.
        history: Every turn so far.
        facts: Facts that decide the routing; see ``routing.next_roles``.
        note: Advice for the next role, from the supervisor or a person.
        question: The open question to a person, or None.
        outcome: Outcome at the end: ``passed``, ``failed``, ``untested`` or
            ``stopped``.
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
