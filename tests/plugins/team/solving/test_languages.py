"""The team solves a small problem in each language."""

from typing import NamedTuple

import pytest

from agentgym.errors import SandboxUnavailableError
from agentgym.sandbox.languages import missing
from tests.plugins.team.coding_team import cast
from tests.plugins.team.coding_team.test_graph import good
from tests.plugins.team.solving.test_solve import roles, solved

ASKED = "Write a function that says whether a number is even"


class SmallProblem(NamedTuple):
    """The file to write, the given tests, and code that the toolchain refuses."""

    target: str
    text: str
    test_path: str
    tests: str
    broken: str
    said: str


PROBLEMS = {
    "python": SmallProblem(
        "solution.py",
        "def even(x):\n    return x % 2 == 0\n",
        "tests/test_solution.py",
        "from solution import even\n\n\n"
        "def test_even():\n    assert even(2)\n    assert not even(3)\n",
        "def f(:\n",
        "invalid-syntax",
    ),
    "javascript": SmallProblem(
        "solution.js",
        "exports.even = (x) => x % 2 == 0;\n",
        "solution.test.js",
        "const test = require('node:test');\nconst assert = require('node:assert');\n"
        "const { even } = require('./solution.js');\n\ntest('even', () => {\n"
        "  assert.equal(even(2), true);\n  assert.equal(even(3), false);\n});\n",
        "\nconst x = ;\n",
        "SyntaxError",
    ),
    "go": SmallProblem(
        "solution.go",
        "package solution\n\nfunc Even(x int) bool {\n\treturn x % 2 == 0\n}\n",
        "solution_test.go",
        'package solution\n\nimport "testing"\n\nfunc TestEven(t *testing.T) {\n'
        '\tif !Even(2) || Even(3) {\n\t\tt.Error("wrong")\n\t}\n}\n',
        "package solution\n\nfunc F() int { return x }\n",
        "x",
    ),
    "rust": SmallProblem(
        "solution.rs",
        "pub fn even(x: i64) -> bool {\n    x % 2 == 0\n}\n",
        "tests/test_solution.rs",
        '#[path = "../solution.rs"]\nmod solution;\n\n#[test]\nfn test_even() {\n'
        "    use solution::even;\n    assert!(even(2));\n    assert!(!even(3));\n}\n",
        "pub fn f() -> i32 {\n    c\n}\n",
        "cannot find value",
    ),
    "typescript": SmallProblem(
        "solution.ts",
        "export const even = (x: number): boolean => x % 2 == 0;\n",
        "solution.test.ts",
        "import { test } from 'node:test';\nimport assert from 'node:assert';\n"
        "import { even } from './solution';\n\ntest('even', () => {\n"
        "  assert.equal(even(2), true);\n  assert.equal(even(3), false);\n});\n",
        "const x: number = 'one';\n",
        "not assignable",
    ),
    "java": SmallProblem(
        "Solution.java",
        "class Solution {\n  static boolean even(int x) { return x % 2 == 0; }\n}\n",
        "SolutionTest.java",
        "class SolutionTest {\n  static void testIt() {\n"
        "    assert Solution.even(2);\n    assert !Solution.even(3);\n  }\n}\n",
        "class Solution { int f() { return x; } }\n",
        "symbol",
    ),
    "cpp": SmallProblem(
        "solution.cpp",
        "bool even(int x) { return x % 2 == 0; }\n",
        "solution_test.cpp",
        "#include <cassert>\nbool even(int x);\nvoid test_it() {\n"
        "  assert(even(2));\n  assert(!even(3));\n}\n",
        "int f() { return x; }\n",
        "not declared",
    ),
}


@pytest.fixture(params=PROBLEMS)
def language(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name != "python" and (why := missing(name)):
        pytest.skip(why)
    return name


@pytest.mark.slow
def test_the_review_reads_what_the_toolchain_says(language: str) -> None:
    problem = PROBLEMS[language]
    right = {problem.target: problem.text}
    long = problem.broken + "".join(f"// {n}\n" for n in range(20))
    if language == "python":
        long = long.replace("//", "#")
    generator = cast.writes({problem.target: long}, right)
    solution = solved(
        ASKED,
        models=good(generator=generator),
        files={problem.test_path: problem.tests},
        language=language,
    )
    assert solution.passed, solution
    assert solution.files[problem.target] == problem.text
    assert roles(solution)[:3] == ["generator", "reviewer", "generator"]
    brief = next(text for text in generator.heard if "Finding: " in text)
    assert problem.said in brief


def test_a_missing_toolchain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentgym.sandbox import languages

    languages.toolchain.cache_clear()
    monkeypatch.setattr(languages.shutil, "which", lambda name: None)
    with pytest.raises(SandboxUnavailableError, match="apt-get install golang-go"):
        solved("Write x", language="go")
    languages.toolchain.cache_clear()
