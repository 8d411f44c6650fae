"""Lint and format: bounded whatever the source, and the same in any order."""

import time

import pytest

from agentgym.errors import ToolError
from agentgym.packs.coding import checks

CONTINUED = "def f(a,\n    b):\n    return (a +\n        b)\n"


@pytest.mark.parametrize(
    "source",
    [
        "a=1;" * 200,
        "x = " + "lambda:" * 60 + "1\n",
        ("a=1;" * 20 + "\n") * 98,
        "x=lambda:1\n" * 720,
        "x = " + "a+" * 500 + "1\n",
    ],
)
def test_a_source_that_takes_long_to_format_is_refused(source: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ToolError, match="too long to format"):
        checks.formatted(source)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "1+" * 1000 + "1\n",
        "x = a" + ".b" * 1500 + "\n",
        "if a:\n    pass\n" + "elif a:\n    pass\n" * 390,
        "x = " + "not " * 1500 + "1\n",
    ],
)
def test_a_deeply_nested_source_is_a_finding(source: str) -> None:
    assert checks.problems(source) == ((1, "too deeply nested"),)


def test_formatting_does_not_change_what_lint_says() -> None:
    checks.formatted("x=1\n")
    checks.problems.cache_clear()
    found = checks.problems(CONTINUED)
    assert found == (
        (2, "E125 continuation line with same indent as next logical line"),
        (2, "E128 continuation line under-indented for visual indent"),
        (4, "E128 continuation line under-indented for visual indent"),
    )
