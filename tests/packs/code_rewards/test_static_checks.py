"""Findings of ruff, bandit and radon, and ways to hide from them."""

import sys

import pytest

from agentgym.errors import MissingExtraError, SandboxError, ScenarioError
from agentgym.packs.kit.code_rewards import (
    KINDS,
    complexities,
    find_problems,
)
from agentgym.packs.kit.code_rewards.static_checks import MOST_CHARACTERS

CLEAN = "def add(first, second):\n    return first + second\n"
BRANCHES = "".join(f"    if x == {n}:\n        return {n}\n" for n in range(11))


def rules(files: dict[str, str]) -> list[tuple[str, int, str, str, str]]:
    return [(f.path, f.line, f.rule, f.severity, f.kind) for f in find_problems(files)]


def test_clean_code_has_no_findings() -> None:
    assert find_problems({"shop/cart.py": CLEAN, "README.md": "import os"}) == []


def test_each_tool_reports_its_kind_with_file_and_line() -> None:
    files = {
        "shop/cart.py": "def f(x, y=[]):\n    return x, y, missing\n",
        "shop/run.py": "def run(command):\n    return eval(command)\n",
        "shop/many.py": f"def many(x):\n{BRANCHES}    return 0\n",
        "shop/name.py": "def Name():\n    return None\n",
    }
    found = rules(files)
    assert ("shop/cart.py", 1, "B006", "medium", "bug") in found
    assert ("shop/cart.py", 2, "F821", "high", "bug") in found
    assert ("shop/run.py", 2, "B307", "medium", "security") in found
    assert ("shop/many.py", 1, "CC", "medium", "complexity") in found
    assert ("shop/name.py", 1, "N802", "low", "style") in found
    assert found == sorted(found, key=lambda each: each[:2])


@pytest.mark.parametrize(
    "hidden",
    [
        {"a.py": "import os  # noqa\n"},
        {"a.py": "# ruff: noqa\nimport os\n"},
        {"build/a.py": "import os\n"},
        {"node_modules/a.py": "import os\n"},
        {"a.py": "import os\n", "ruff.toml": "exclude = ['*']\n"},
        {"a.py": "import os\n", ".gitignore": "*\n"},
        {"-a.py": "import os\n"},
        {"a.py": "def f(x):\n    return eval(x)  # nosec\n"},
        {"a.py": "def f(x):\n    return eval(x)\n", ".bandit": "[bandit]\nskips: B307"},
    ],
)
def test_code_cannot_hide_from_the_checks(hidden: dict[str, str]) -> None:
    assert find_problems(hidden)


@pytest.mark.parametrize("text", ["def (:\n", "x = 1\0\n", "(" * 3000 + ")" * 3000])
def test_code_that_does_not_parse_has_findings_of_the_kinds_that_need_it(
    text: str,
) -> None:
    found = find_problems({"a.py": text}, ["security", "complexity"])
    assert [(f.severity, f.rule) for f in found] == [("high", "unchecked")] * 2
    assert all(f.message.isprintable() for f in find_problems({"a.py": text}))


def test_too_much_code_is_a_finding_of_every_kind() -> None:
    found = find_problems({"a.py": "#" * (MOST_CHARACTERS + 1)})
    assert sorted(f.kind for f in found) == sorted(KINDS)
    assert {f.severity for f in found} == {"high"}


def test_an_assert_is_a_finding_outside_of_tests_only() -> None:
    text = "def test_it():\n    assert True is not None\n"
    assert find_problems({"tests/test_a.py": text}, ["security"]) == []
    assert [f.rule for f in find_problems({"a.py": text}, ["security"])] == ["B101"]


def test_each_function_has_its_complexity() -> None:
    text = "class A:\n    def m(self, x):\n        return 1 if x else 2\n\n\n" + CLEAN
    assert complexities(text) == [("add", 6, 1), ("A.m", 2, 2)]


@pytest.mark.parametrize("module", ["ruff", "bandit", "radon"])
def test_a_missing_tool_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match="needs the extra 'code-quality'"):
        find_problems({"a.py": "a = 11\n"})
    with pytest.raises(MissingExtraError, match="Measuring the complexity of code"):
        complexities("a = 13\n")


def test_a_wrong_kind_and_a_path_that_climbs_are_refused() -> None:
    with pytest.raises(ScenarioError, match="'taste'; there are bug, style, security"):
        find_problems({"a.py": CLEAN}, ["taste"])  # type: ignore[list-item]
    with pytest.raises(SandboxError, match=r"\.\./a\.py"):
        find_problems({"../a.py": CLEAN})
