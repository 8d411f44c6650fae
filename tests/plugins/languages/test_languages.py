"""Programs, tests and values in languages other than Python."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import SandboxError, SandboxUnavailableError
from agentgym.sandbox import Program, RunTests, Sandbox, SandboxConfig, gives
from agentgym.sandbox.languages import toolchain
from agentgym.sandbox.verdict import json_text, json_text_of


def sources(case: str) -> dict[str, dict[str, str]]:
    """Return the texts of a case's files by path, by language."""
    root = Path(__file__).with_name("sources") / case
    return {
        language.name: {
            str(file.relative_to(language)): file.read_text()
            for file in sorted(language.rglob("*.*"))
        }
        for language in sorted(root.iterdir())
    }


PROGRAMS = sources("hello")
MAIN = {
    "javascript": "main.js",
    "go": "main.go",
    "rust": "main.rs",
    "typescript": "main.ts",
    "java": "shop/Main.java",
    "cpp": "main.cpp",
}
TESTS = sources("cart")
IDS = {
    "javascript": [
        f"cart.test.js::{name}" for name in ("right", "wrong", "deep > crash")
    ],
    "go": [f"cart_test.go::Test{name}" for name in ("Right", "Wrong", "Crash")],
    "rust": [f"cart.rs::tests::{name}" for name in ("right", "wrong", "crash")],
    "typescript": [
        f"cart.test.ts::{name}" for name in ("right", "wrong", "deep > crash")
    ],
    "java": [f"CartTest.java::test{name}" for name in ("Right", "Wrong", "Crash")],
    "cpp": [f"cart_test.cpp::test_{name}" for name in ("right", "wrong", "crash")],
}
BROKEN = sources("broken")
EARLY = sources("early_end")
VALUES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "javascript": (
        "cart.js",
        {
            "total([1, 2])": 3,
            "total([0.5, 0.5])": 1.0,
            "({ a: [null, true, 'x\"'], b: -0 })": {"a": (None, True, 'x"'), "b": 0},
            "Promise.resolve(4)": 4,
            "2n ** 70n": 2**70,
        },
        {"total([2])": 1, "NaN": None, "undefined": None, "new Map()": {}, "gone()": 1},
    ),
    "go": (
        "cart.go",
        {
            "Total([]int{1, 2})": 3,
            'map[string]any{"a": []any{nil, true, "x\\""}}': {"a": [None, True, 'x"']},
            "1.5": 1.5,
        },
        {"Total(nil)": 1, "1": True, "[]int{}[Total(nil)]": 0},
    ),
    "rust": (
        "cart.rs",
        {
            "total(&[1, 2])": 3,
            '(1.5e300, Some("x\\""), None::<i64>)': [1.5e300, 'x"', None],
            "std::collections::HashMap::from([(1, vec![true])])": {"1": [True]},
        },
        {"total(&[])": 1, "total(&[][2..])": 0, "f64::NAN": None},
    ),
    "typescript": (
        "cart.ts",
        {"total([1, 2])": 3, "({ a: [null, 'x\"'] })": {"a": [None, 'x"']}},
        {"total([2])": 1, "undefined": None, "gone()": 1},
    ),
    "java": (
        "Cart.java",
        {
            "total(1, 2)": 3,
            'java.util.Map.of("a", java.util.List.of(1.5, true, "x\\""))': {
                "a": [1.5, True, 'x"']
            },
            "new int[][] {{1}, {}}": [[1], []],
            "java.util.Optional.empty()": None,
        },
        {"total(2)": 1, "Double.NaN": None, "new Object()": {}, "1 / total()": 0},
    ),
    "cpp": (
        "cart.cpp",
        {
            "total({1, 2})": 3,
            "1.5e300": 1.5e300,
            'std::string("x\\"")': 'x"',
            'std::map<std::string, std::vector<bool>>{{"a", {true}}}': {"a": [True]},
            "std::make_pair(1, std::optional<int>())": [1, None],
        },
        {"total({2})": 1, "std::stoi(std::string())": 0, "0.0 / 0": None},
    ),
}


few = pytest.mark.parametrize(
    "language",
    [
        *("javascript", "go", "rust"),
        # Each compilation takes a second.
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("typescript", "java", "cpp")
        ),
    ],
    indirect=True,
)


def test_a_program_is_compiled_and_run(
    language: str, languages_sandbox: Sandbox
) -> None:
    command = Program(MAIN[language], ("you",))
    result = languages_sandbox.run_sync(PROGRAMS[language], command, collect=True)
    assert result.ok, result
    assert result.stdout == "hi you\n"
    assert result.files == {}, "what the compiler makes is not in the workspace"


def test_outcomes_of_tests(language: str, languages_sandbox: Sandbox) -> None:
    result = languages_sandbox.run_sync(
        TESTS[language], RunTests(language=language), timeout_s=30
    )
    found = {test.name: test for test in result.tests or ()}
    assert set(found) == set(IDS[language]), result
    right, wrong, crash = (found[name] for name in IDS[language])
    assert (right.outcome, right.message) == ("passed", "")
    assert wrong.outcome == "failed"
    assert "sum" in wrong.message
    assert crash.outcome == "error"
    assert not result.ok
    assert result.passed == 1


@few
def test_selected_tests(language: str, languages_sandbox: Sandbox) -> None:
    select = (IDS[language][0],)
    result = languages_sandbox.run_sync(
        TESTS[language], RunTests(select=select, language=language), timeout_s=30
    )
    assert [test.name for test in result.tests or ()] == [*select]
    assert result.ok, result


@few
@pytest.mark.parametrize("files", [BROKEN, EARLY], ids=["broken", "early-end"])
def test_a_run_that_does_not_end_is_no_success(
    language: str, languages_sandbox: Sandbox, files: dict[str, dict[str, str]]
) -> None:
    result = languages_sandbox.run_sync(
        files[language], RunTests(language=language), timeout_s=30
    )
    assert not result.ok, result
    assert any(test.outcome == "error" for test in result.tests or ()), result


@few
def test_values(language: str, languages_sandbox: Sandbox) -> None:
    path, right, wrong = VALUES[language]
    verdict = gives(
        languages_sandbox, TESTS[language], {path: right | wrong}, timeout_s=30
    )
    assert set(verdict.wrong) == {f"{path}: {text}" for text in wrong}, verdict


def test_files_of_a_module_are_evaluated_in(languages_sandbox: Sandbox) -> None:
    files = {
        "sum.mjs": "const secret = 4; export const add = (a, b) => a + b + secret;",
        "app/index.js": "export default (a) => a * 2; function inner() { return 7 }",
        "app/package.json": '{"type": "module"}',
        "strict.js": "'use strict'; module.exports = { one: () => 1 };",
    }
    expected = {
        "sum.mjs": {"add(1, 2)": 7, "secret": 4},
        "app/index.js": {"inner()": 7},
        "strict.js": {"one()": 1},
    }
    if "javascript" not in languages_sandbox.config.languages:
        pytest.skip("Node.js is not installed")
    assert gives(languages_sandbox, files, expected)


@pytest.mark.slow
def test_packages_of_go_and_cargo(languages_sandbox: Sandbox) -> None:
    files = {
        "go.mod": "module shop\n\ngo 1.18\n",
        "cart/cart.go": "package cart\n\nfunc Two() int { return 2 }\n",
        "cart/cart_test.go": (
            'package cart\n\nimport "testing"\n\nfunc TestTwo(t *testing.T) {}\n'
        ),
        "cmd/main.go": (
            'package main\n\nimport (\n\t"fmt"\n\t"shop/cart"\n)\n\n'
            "func main() { fmt.Println(cart.Two()) }\n"
        ),
        "Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "pub mod cart;\n",
        "src/cart.rs": (
            "pub fn two() -> i64 { hidden() }\nfn hidden() -> i64 { 2 }\n"
            "#[cfg(test)]\nmod tests {\n    #[test]\n    fn two() {}\n}\n"
        ),
        "src/main.rs": 'fn main() { println!("{}", shop::cart::two()) }\n',
        "tests/all.rs": "#[test]\nfn all() { assert_eq!(shop::cart::two(), 2) }\n",
    }
    names = {
        "go": ("cmd/main.go", {"cart/cart_test.go::TestTwo"}, "cart/cart.go"),
        "rust": (
            "src/main.rs",
            {"src/lib.rs::cart::tests::two", "tests/all.rs::all"},
            "src/cart.rs",
        ),
    }
    asked = {"go": {"Two()": 2}, "rust": {"hidden()": 2, "two()": 2}}
    for language, (main, tests, module) in names.items():
        if language not in languages_sandbox.config.languages:
            continue
        ran = languages_sandbox.run_sync(files, Program(main), timeout_s=30)
        assert ran.stdout == "2\n", ran
        result = languages_sandbox.run_sync(
            files, RunTests(language=language), timeout_s=30
        )
        assert result.ok, result
        assert {test.name for test in result.tests or ()} == tests
        verdict = gives(
            languages_sandbox, files, {module: asked[language]}, timeout_s=30
        )
        assert verdict, verdict


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (True, "true"), ((1, [2.5]), "[1, [2.5]]"), ({"b": 1, "a": None}, "")],
)
def test_one_text_for_equal_values(value: object, text: str) -> None:
    assert json_text(value) == (text or '{"a": null, "b": 1}')
    assert json_text_of(json.dumps(value)) == json_text(value)


@pytest.mark.parametrize("text", ["", "NaN", "1e999", "1 2"])
def test_no_text_for_other_than_json(text: str) -> None:
    assert json_text_of(text) is None


def test_a_sandbox_without_the_language_says_so(best_sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match=r"languages=\('go',\)"):
        best_sandbox.run_sync({"a.go": ""}, Program("a.go"))
    with pytest.raises(SandboxError, match=r"'a.txt' is not the path of a module"):
        best_sandbox.run_sync({"a.txt": ""}, Program("a.txt"))


def test_limits_are_raised_to_the_least(best_rung: str) -> None:
    config = SandboxConfig(languages=("go",))
    assert config.limits.memory_mb == 4096
    more = replace(config.limits, memory_mb=9000)
    assert SandboxConfig(languages=("go",), limits=more).limits == more
    assert SandboxConfig().limits.memory_mb == 512


@pytest.mark.parametrize(
    ("language", "program", "package"),
    [
        ("javascript", "node", "nodejs"),
        ("cpp", "g++", "g++"),
    ],
)
def test_a_missing_toolchain_is_named_with_its_package(
    language: str, program: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailableError) as caught:
        Sandbox(SandboxConfig(languages=(language,))).open()
    toolchain.cache_clear()
    assert f"`{program}` is not on the search path" in str(caught.value)
    assert f"apt-get install {package})" in str(caught.value)


def test_a_rung_without_subprocesses_has_no_compilers() -> None:
    for language in ("go", "rust", "java", "cpp"):
        config = SandboxConfig(rung="landlock-user", languages=(language,))
        with pytest.raises(
            SandboxUnavailableError, match="cannot (run|be used)|not in"
        ):
            Sandbox(config).open()
