"""The rules that decide which roles may take the next turn."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

GENERATOR: Final = "generator"
REVIEWER: Final = "reviewer"
EXECUTOR: Final = "executor"
FINISH: Final = "finish"
Choice = Literal["generator", "reviewer", "executor", "finish"]
"""Possible choices of the supervisor: a role, or the end of the work."""

SIMPLE_LINES = 12
"""A change that adds more lines than this to a file needs a review."""

_RISKY = re.compile(
    r"\b(eval|exec|compile|__import__|subprocess|os\.(system|remove|unlink|rmdir|popen)"
    r"|shutil|socket|pickle|ctypes|requests|urllib|child_process|syscall|unsafe)\b"
    r"|os/exec|std::(process|fs|net)"
)


def next_roles(facts: Mapping[str, Any]) -> tuple[Choice, ...]:
    """Return the roles that may be next, or ``finish``; the preferred one is first.

    After a serious finding or a failed test, it is the generator, while rounds are
    left.
    """
    has_rounds = facts["rounds"] < facts["max_rounds"]
    if not facts["written"]:
        return (GENERATOR,) if has_rounds else (FINISH,)
    tests = facts["tests"]
    if has_rounds and (facts["serious"] or (tests and tests["failed"])):
        return (GENERATOR,)
    needs_review = not facts["simple"] and not facts["reviewed"]
    if tests is None:
        if needs_review:
            return (REVIEWER, EXECUTOR)
        return (EXECUTOR,) if facts["reviewed"] else (EXECUTOR, REVIEWER)
    if tests["failed"] or facts["serious"]:
        return (FINISH,)
    return (REVIEWER,) if needs_review else (FINISH,)


def describe(facts: Mapping[str, Any]) -> str:
    """Describe the facts of :func:`next_roles` to the supervisor, in short lines."""
    code = "none"
    if facts["written"]:
        code = "short" if facts["simple"] else "long or risky"
    review = "none"
    if facts["reviewed"]:
        review = f"{facts['serious']} serious" if facts["serious"] else "clean"
    tests = facts["tests"]
    shown = "not run"
    if tests is not None:
        shown = f"{tests['failed']} failed" if tests["failed"] else "passed"
        if not tests["failed"] and not tests["passed"]:
            shown = "there are none"
    left = max(0, facts["max_rounds"] - facts["rounds"])
    return f"Code: {code}.\nReview: {review}.\nTests: {shown}.\nRounds left: {left}."


def is_simple(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Return whether a change is in one file, adds few lines, and is not risky."""
    changed = changed_files(before, after)
    if len(changed) > 1 or is_risky(before, after):
        return False
    return all(
        len(added_lines(before.get(path, ""), after.get(path, ""))) <= SIMPLE_LINES
        for path in changed
    )


def is_risky(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Return whether a change deletes a file or adds risky code, e.g. ``eval``."""
    if before.keys() - after.keys():
        return True
    return any(
        _RISKY.search(line)
        for path in changed_files(before, after)
        for line in added_lines(before.get(path, ""), after[path])
    )


def changed_files(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the sorted paths of the files that differ between the two states."""
    return sorted(p for p in {*before, *after} if before.get(p) != after.get(p))


def added_lines(before: str, after: str) -> list[str]:
    """Return the non-empty lines of ``after`` that are not in ``before``."""
    known = set(before.splitlines())
    return [line for line in after.splitlines() if line.strip() and line not in known]
