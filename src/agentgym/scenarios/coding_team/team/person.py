"""Create questions to a person, and parse the answers."""

from collections.abc import Mapping
from typing import Any, Final

from agentgym.scenarios.coding_team.team.routing import changed_files

YES: Final = "yes"
NO: Final = "no"
MOST_ASKED = 3
"""Number of times a question is asked before it counts as ``no``."""

_YES = frozenset({"y", "yes", "ok", "okay", "true", "approve", "accept", "go on"})
_NO = frozenset({"n", "no", "stop", "false", "reject", "quit", "exit"})
_LEAST_WORDS = 2


def understood(answer: Any) -> str | None:
    """Return ``yes``, ``no``, or the instruction in an answer; None if it is unclear.

    An instruction has at least two words. The answer None counts as ``no``: the person
    has left. LangGraph does not always allow the answer None, so ``{"answer": None}``
    means the same.
    """
    if isinstance(answer, Mapping):
        answer = answer.get("answer", "")
    if answer is None:
        return NO
    if isinstance(answer, bool):
        return YES if answer else NO
    if not isinstance(answer, str):
        return None
    text = answer.strip()
    word = text.lower().rstrip(".!")
    if word in _YES:
        return YES
    if word in _NO:
        return NO
    return text if len(text.split()) >= _LEAST_WORDS else None


def about_edit(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, Any]:
    """Return a question to a person: keep a risky edit?

    Args:
        before: Text of each file before the edit, by path.
        after: Text of each file after the edit, by path.

    Returns:
        The question: its ``kind``, its ``text``, and the changed ``files``.
    """
    changed = changed_files(before, after)
    return {
        "kind": "risky_edit",
        "text": f"Keep this change of {', '.join(changed)}? It deletes a file, changes "
        "one that you gave, or acts on the machine. Answer yes, no, or what to do "
        "instead.",
        "files": {path: after.get(path) for path in changed},
    }


def about_deadlock() -> dict[str, Any]:
    """Return a question to a person: go on with code that has failed before?"""
    return {
        "kind": "deadlock",
        "text": "The generator wrote the same code again, and it has failed already. "
        "Answer yes to go on, no to stop, or what to do instead.",
    }


def about_rounds(rounds: int) -> dict[str, Any]:
    """Return a question to a person: after ``rounds`` failed rounds, try again?"""
    return {
        "kind": "failed_rounds",
        "text": f"{rounds} rounds have not solved it. Answer yes for as many more, no "
        "to stop, or what to do instead.",
    }
