"""Small problems, three per language: tests, a wrong and a right solution."""

from typing import NamedTuple


class SmallProblem(NamedTuple):
    """One problem.

    Attributes:
        asked: The request.
        target: The file to write.
        tests: The given tests: path and text.
        wrong: A solution that fails them.
        right: One that passes.
    """

    asked: str
    target: str
    tests: tuple[str, str]
    wrong: str
    right: str


def _python(asked: str, name: str, body: str, bad: str, checks: str) -> SmallProblem:
    lines = "\n".join(f"    assert {check}" for check in checks.split("; "))
    return SmallProblem(
        asked,
        "solution.py",
        (
            "tests/test_solution.py",
            f"from solution import {name}\n\n\ndef test_{name}():\n{lines}\n",
        ),
        f"def {name}(x):\n    return {bad}\n",
        f"def {name}(x):\n    return {body}\n",
    )


def _javascript(
    asked: str, name: str, body: str, bad: str, checks: str
) -> SmallProblem:
    lines = "\n".join(
        f"  assert.deepStrictEqual({check.replace(' == ', ', ')});"
        for check in checks.split("; ")
    )
    return SmallProblem(
        asked,
        "solution.js",
        (
            "solution.test.js",
            (
                "const test = require('node:test');\n"
                "const assert = require('node:assert');\n"
                f"const {{ {name} }} = require('./solution.js');\n\n"
                f"test('{name}', () => {{\n{lines}\n}});\n"
            ),
        ),
        f"exports.{name} = (x) => {bad};\n",
        f"exports.{name} = (x) => {body};\n",
    )


def _go(
    asked: str, name: str, kinds: str, body: str, bad: str, checks: str
) -> SmallProblem:
    taken, _, given = kinds.partition(" ")
    lines = "\n".join(
        f'\tif {check.replace(" == ", " != ")} {{\n\t\tt.Error("{number}")\n\t}}'
        for number, check in enumerate(checks.split("; "))
    )
    head = f"package solution\n\nfunc {name}(x {taken}) {given} {{\n"
    return SmallProblem(
        asked,
        "solution.go",
        (
            "solution_test.go",
            (
                'package solution\n\nimport "testing"\n\n'
                f"func Test{name}(t *testing.T) {{\n{lines}\n}}\n"
            ),
        ),
        f"{head}\t{bad}\n}}\n",
        f"{head}\t{body}\n}}\n",
    )


def _rust(
    asked: str, name: str, kinds: str, body: str, bad: str, checks: str
) -> SmallProblem:
    taken, _, given = kinds.partition(" ")
    lines = "\n".join(
        f"    assert_eq!({check.replace(' == ', ', ')});"
        for check in checks.split("; ")
    )
    head = f"pub fn {name}(x: {taken}) -> {given} {{\n"
    return SmallProblem(
        asked,
        "solution.rs",
        (
            "tests/test_solution.rs",
            (
                '#[path = "../solution.rs"]\nmod solution;\n\n'
                f"#[test]\nfn test_{name}() {{\n    use solution::{name};\n"
                f"{lines}\n}}\n"
            ),
        ),
        f"{head}    {bad}\n}}\n",
        f"{head}    {body}\n}}\n",
    )


class _Shape(NamedTuple):
    """The texts of problems in one language, with places for names and code."""

    target: str
    solution: str
    test: str
    tests: str
    check: str
    types: dict[str, str]


_SHAPES = {
    "typescript": _Shape(
        "solution.ts",
        "export const {name} = (x: number): {type} => {body};\n",
        "solution.test.ts",
        "import {{ test }} from 'node:test';\nimport assert from 'node:assert';\n"
        "import {{ {name} }} from './solution';\n\n"
        "test('{name}', () => {{\n{checks}}});\n",
        "  assert.equal({call}, {value});\n",
        {"int": "number", "bool": "boolean"},
    ),
    "java": _Shape(
        "Solution.java",
        "class Solution {{\n  static {type} {name}(int x) {{ return {body}; }}\n}}\n",
        "SolutionTest.java",
        "class SolutionTest {{\n  static void testIt() {{\n{checks}  }}\n}}\n",
        "    assert Solution.{call} == {value};\n",
        {"int": "int", "bool": "boolean"},
    ),
    "cpp": _Shape(
        "solution.cpp",
        "{type} {name}(int x) {{ return {body}; }}\n",
        "solution_test.cpp",
        "#include <cassert>\n{type} {name}(int x);\nvoid test_it() {{\n{checks}}}\n",
        "  assert({call} == {value});\n",
        {"int": "int", "bool": "bool"},
    ),
}


def _shaped(language: str) -> tuple[SmallProblem, ...]:
    shape, found = _SHAPES[language], []
    for asked, name, kind, right, wrong, values in (
        (NEXT, "next", "int", "x + 1", "2 * x", {2: "3", 5: "6"}),
        (EVEN, "even", "bool", "x % 2 == 0", "x > 0", {2: "true", 3: "false"}),
        (TWICE, "twice", "int", "2 * x", "x + 2", {2: "4", 5: "10"}),
    ):
        names = {"name": name, "type": shape.types[kind]}
        checks = "".join(
            shape.check.format(call=f"{name}({given})", value=value)
            for given, value in values.items()
        )
        tests = shape.test, shape.tests.format(checks=checks, **names)
        made = [shape.solution.format(body=body, **names) for body in (wrong, right)]
        found.append(SmallProblem(asked, shape.target, tests, *made))
    return tuple(found)


NEXT = "Write a function that adds one to a number"
FLIP = "Write a function that reverses a string"
EVEN = "Write a function that says whether a number is even"
TWICE = "Write a function that doubles a number"
PROBLEMS = {
    "python": (
        _python(FLIP, "flip", "x[::-1]", "x", "flip('ab') == 'ba'; flip('') == ''"),
        _python(EVEN, "even", "x % 2 == 0", "x > 0", "even(2) is True; not even(3)"),
        _python(TWICE, "twice", "2 * x", "x + 2", "twice(2) == 4; twice(5) == 10"),
    ),
    "javascript": (
        _javascript(
            *(FLIP, "flip", "[...x].reverse().join('')", "x"),
            "flip('ab') == 'ba'; flip('') == ''",
        ),
        _javascript(
            *(EVEN, "even", "x % 2 === 0", "x > 0"), "even(2) == true; even(3) == false"
        ),
        _javascript(
            *(TWICE, "twice", "2 * x", "x + 2"), "twice(2) == 4; twice(5) == 10"
        ),
    ),
    "go": (
        _go(
            *(FLIP, "Flip", "string string"),
            'out := ""\n\tfor _, c := range x {\n\t\tout = string(c) + out\n\t}\n'
            "\treturn out",
            "return x",
            'Flip("ab") == "ba"; Flip("") == ""',
        ),
        _go(
            *(EVEN, "Even", "int bool", "return x%2 == 0", "return x > 0"),
            "Even(2) == true; Even(3) == false",
        ),
        _go(
            *(TWICE, "Twice", "int int", "return 2 * x", "return x + 2"),
            "Twice(2) == 4; Twice(5) == 10",
        ),
    ),
    "rust": (
        _rust(
            *(FLIP, "flip", "&str String", "x.chars().rev().collect()"),
            "x.to_string()",
            'flip("ab") == "ba"; flip("") == ""',
        ),
        _rust(
            *(EVEN, "even", "i64 bool", "x % 2 == 0", "x > 0"),
            "even(2) == true; even(3) == false",
        ),
        _rust(
            *(TWICE, "twice", "i64 i64", "2 * x", "x + 2"),
            "twice(2) == 4; twice(5) == 10",
        ),
    ),
    **{language: _shaped(language) for language in _SHAPES},
}
