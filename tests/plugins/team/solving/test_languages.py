"""The team solves small problems with good, sloppy and broken roles."""

from typing import Any

import pytest

from agentgym.errors import SandboxUnavailableError, UsageError
from agentgym.sandbox.languages import missing
from tests.plugins.team.coding_team import cast
from tests.plugins.team.coding_team.test_graph import good
from tests.plugins.team.solving.problems import PROBLEMS, SmallProblem
from tests.plugins.team.solving.test_solve import roles, solved

STYLES = ("good", "sloppy", "broken")


def generator_of(style: str, problem: SmallProblem) -> cast.Actor:
    """Return a generator that is right at once, wrong at first, or only shows code."""
    wrong, right = {problem.target: problem.wrong}, {problem.target: problem.right}
    if style == "good":
        return cast.writes(right)
    if style == "sloppy":
        return cast.writes(wrong, right)
    return cast.in_turn(f"Take this:\n```\n{problem.right}```")


@pytest.fixture(params=PROBLEMS)
def language(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name != "python" and (why := missing(name)):
        pytest.skip(why)
    return name


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_a_small_problem_is_solved(language: str, style: str) -> None:
    problem = PROBLEMS[language][STYLES.index(style)]
    models = good(generator=generator_of(style, problem))
    if style == "broken":
        models["executor"] = cast.broken()
    solution = solved(
        problem.asked, models=models, files=dict([problem.tests]), language=language
    )
    assert solution.passed, solution
    assert solution.files[problem.target] == problem.right
    assert solution.changed == (problem.target,)
    turns = ["generator", "executor"] * (2 if style == "sloppy" else 1)
    assert roles(solution) == turns


BROKEN = {
    "python": ("solution.py", "def f(:\n", "invalid-syntax"),
    "javascript": ("solution.js", "\nconst x = ;\n", "SyntaxError"),
    "go": ("solution.go", "package solution\n\nfunc F() int { return x }\n", "x"),
    "rust": ("solution.rs", "pub fn f() -> i32 {\n    c\n}\n", "cannot find value"),
    "typescript": ("solution.ts", "const x: number = 'one';\n", "not assignable"),
    "java": ("Solution.java", "class Solution { int f() { return x; } }\n", "symbol"),
    "cpp": ("solution.cpp", "int f() { return x; }\n", "not declared"),
}


@pytest.mark.slow
def test_the_review_reads_what_the_toolchain_says(language: str) -> None:
    path, text, said = BROKEN[language]
    problem = PROBLEMS[language][0]
    long = text + "".join(f"// {n}\n" for n in range(20))
    if language == "python":
        long = long.replace("//", "#")
    generator = cast.writes({path: long}, {path: problem.right})
    solution = solved(
        problem.asked,
        models=good(generator=generator),
        files=dict([problem.tests]),
        language=language,
    )
    assert solution.passed, solution
    assert roles(solution)[:3] == ["generator", "reviewer", "generator"]
    brief = next(text for text in generator.heard if "Finding: " in text)
    assert said in brief


def test_a_missing_toolchain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentgym.sandbox import languages

    def find(name: str) -> Any:
        return None

    languages.toolchain.cache_clear()
    monkeypatch.setattr(languages.shutil, "which", find)
    with pytest.raises(SandboxUnavailableError, match="apt-get install golang-go"):
        solved("Write x", language="go")
    languages.toolchain.cache_clear()


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(
        UsageError, match="known: python, javascript, go, rust, typescript"
    ):
        solved("Write x", language="cobol")
