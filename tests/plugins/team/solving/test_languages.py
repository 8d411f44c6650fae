"""The team solves a small problem in each language."""

from typing import Any, NamedTuple

import pytest

from agentgym.errors import SandboxUnavailableError, UsageError
from agentgym.sandbox.languages import missing
from tests.plugins.team.coding_team import cast
from tests.plugins.team.coding_team.test_graph import good
from tests.plugins.team.solving.test_solve import roles, solved

ASKED = "Write a function that says whether a number is even"
RIGHT, WRONG = "x % 2 == 0", "x > 0"


class SmallProblem(NamedTuple):
    """The file to write, with BODY for an expression, and the given tests."""

    target: str
    text: str
    test_path: str
    tests: str

    def solution(self, body: str) -> dict[str, str]:
        return {self.target: self.text.replace("BODY", body)}


PROBLEMS = {
    "python": SmallProblem(
        "solution.py",
        "def even(x):\n    return BODY\n",
        "tests/test_solution.py",
        "from solution import even\n\n\n"
        "def test_even():\n    assert even(2)\n    assert not even(3)\n",
    ),
    "javascript": SmallProblem(
        "solution.js",
        "exports.even = (x) => BODY;\n",
        "solution.test.js",
        "const test = require('node:test');\nconst assert = require('node:assert');\n"
        "const { even } = require('./solution.js');\n\ntest('even', () => {\n"
        "  assert.equal(even(2), true);\n  assert.equal(even(3), false);\n});\n",
    ),
    "go": SmallProblem(
        "solution.go",
        "package solution\n\nfunc Even(x int) bool {\n\treturn BODY\n}\n",
        "solution_test.go",
        'package solution\n\nimport "testing"\n\nfunc TestEven(t *testing.T) {\n'
        '\tif !Even(2) || Even(3) {\n\t\tt.Error("wrong")\n\t}\n}\n',
    ),
    "rust": SmallProblem(
        "solution.rs",
        "pub fn even(x: i64) -> bool {\n    BODY\n}\n",
        "tests/test_solution.rs",
        '#[path = "../solution.rs"]\nmod solution;\n\n#[test]\nfn test_even() {\n'
        "    use solution::even;\n    assert!(even(2));\n    assert!(!even(3));\n}\n",
    ),
    "typescript": SmallProblem(
        "solution.ts",
        "export const even = (x: number): boolean => BODY;\n",
        "solution.test.ts",
        "import { test } from 'node:test';\nimport assert from 'node:assert';\n"
        "import { even } from './solution';\n\ntest('even', () => {\n"
        "  assert.equal(even(2), true);\n  assert.equal(even(3), false);\n});\n",
    ),
    "java": SmallProblem(
        "Solution.java",
        "class Solution {\n  static boolean even(int x) { return BODY; }\n}\n",
        "SolutionTest.java",
        "class SolutionTest {\n  static void testIt() {\n"
        "    assert Solution.even(2);\n    assert !Solution.even(3);\n  }\n}\n",
    ),
    "cpp": SmallProblem(
        "solution.cpp",
        "bool even(int x) { return BODY; }\n",
        "solution_test.cpp",
        "#include <cassert>\nbool even(int x);\nvoid test_it() {\n"
        "  assert(even(2));\n  assert(!even(3));\n}\n",
    ),
}


@pytest.fixture(params=PROBLEMS)
def language(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name != "python" and (why := missing(name)):
        pytest.skip(why)
    return name


@pytest.mark.slow
def test_a_small_problem_is_solved(language: str) -> None:
    problem = PROBLEMS[language]
    right = problem.solution(RIGHT)
    solution = solved(
        ASKED,
        models=good(generator=cast.writes(problem.solution(WRONG), right)),
        files={problem.test_path: problem.tests},
        language=language,
    )
    assert solution.passed, solution
    assert solution.files[problem.target] == right[problem.target]
    assert solution.changed == (problem.target,)
    assert roles(solution) == ["generator", "executor"] * 2


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
    problem = PROBLEMS[language]
    long = text + "".join(f"// {n}\n" for n in range(20))
    if language == "python":
        long = long.replace("//", "#")
    generator = cast.writes({path: long}, problem.solution(RIGHT))
    solution = solved(
        ASKED,
        models=good(generator=generator),
        files={problem.test_path: problem.tests},
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
