"""The typed state of the team's graph, shared by all roles."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.graph.message import add_messages


class ReviewFinding(TypedDict):
    """A problem that a check or the reviewer found in the code.

    Attributes:
        severity: ``high`` (serious), ``medium`` or ``low``.
        message: Description of the problem. From ruff, bandit or radon, it starts with
            the rule's name.
    """

    path: str
    line: int
    severity: str
    message: str


class TestReport(TypedDict):
    """The results of the tests since the last edit.

    ``failures`` are ``name: message``.
    """

    __test__ = False  # type: ignore[misc]

    passed: int
    failed: int
    failures: list[str]


class Turn(TypedDict):
    """One turn of a role, as an entry of the history.

    Attributes:
        role: Name of the role, or ``person``.
        did: The result of the turn in a few words.
        said: The role's last message, or the person's answer; maybe empty.
    """

    role: str
    round: int
    did: str
    said: str


class TeamState(TypedDict, total=False):
    """The state of the team's graph.

    Attributes:
        findings: Problems found in the files, each until its file is edited.
        tests: Results of the tests since the last edit; None until one has failed or
            all have run.
        facts: Facts that decide the next role; see ``routing.next_roles``.
        note: Advice for the next role, from the supervisor, the executor or a person.
        question: The question that a person has to answer now, or None.
        outcome: Set at the end: ``passed``, ``failed``, ``untested``, or ``stopped`` if
            a person stopped the work.
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
