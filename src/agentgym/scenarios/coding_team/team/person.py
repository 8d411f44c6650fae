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
    """Parse a person's answer into ``yes``, ``no``, or the text of an instruction.

    An answer of two or more words counts as an instruction. The answer None means that
    the person has left, and counts as ``no``. LangGraph does not always allow None as
    an answer, so ``{"answer": None}`` means the same.

    Returns:
        None if the answer is unclear.
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
    """Return the question whether the person wants to keep a risky edit.

    Args:
        before: Text of each file before the edit, by path.
        after: Text of each file after the edit, by path.

    Returns:
        The question: its ``kind``, its ``text``, and ``files``: the new text of each
        changed file, None if it was deleted.
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
    """Return the question whether to go on after the generator repeated bad code."""
    return {
        "kind": "deadlock",
        "text": "The generator wrote the same code again, and it has failed already. "
        "Answer yes to go on, no to stop, or what to do instead.",
    }


def about_rounds(rounds: int) -> dict[str, Any]:
    """Return the question whether to go on after ``rounds`` failed rounds."""
    return {
        "kind": "failed_rounds",
        "text": f"{rounds} rounds have not solved it. Answer yes for as many more, no "
        "to stop, or what to do instead.",
    }
