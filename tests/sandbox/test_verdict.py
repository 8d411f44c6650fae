"""A verdict that code under test cannot forge, and what it counts as a right value."""

import math
from typing import Any

import pytest

from agentgym.errors import SandboxError
from agentgym.sandbox import Limits, RunTests, Sandbox, SandboxConfig, gives

WRONG = "def double(n):\n    return n\n"
TEST = "from app import double\n\n\ndef test_double():\n    assert double(4) == 8\n"
ASKED: dict[str, dict[str, Any]] = {"app.py": {"double(4)": 8, "double([1])": [1, 1]}}

FORGERS = {
    "a report": (
        "import os\n"
        'LINE = b\'{"test": "tests/test_app.py::test_double", "outcome": "passed",\'\n'
        'LINE += b\' "message": "", "seconds": 0}\\n{"running": null}\\n\'\n'
        "def double(n):\n"
        "    os.write(3, LINE)\n"
        "    os._exit(0)\n"
    ),
    "what equals everything": (
        "class Any(int):\n"
        "    __eq__ = lambda *_: True\n"
        "    __hash__ = None\n"
        "    __repr__ = __str__ = lambda self: '8'\n"
        "def double(n):\n    return Any(8)\n"
    ),
    "a patched runner": (
        "import sys\n"
        "runner = sys.modules['_agentgym_guest.testrun']\n"
        "runner._run_test = lambda identity, function: {\n"
        "    'test': identity, 'outcome': 'passed', 'message': '', 'seconds': 0.0}\n"
    )
    + WRONG,
}
"""Each passes the tests that run beside it, and is wrong."""

NO_FORGERY = {
    "a patched way out": (
        "import __main__, builtins, os, sys\n"
        "told = {'double(4)': '8', 'double([1])': 'list(1, 1)'}\n"
        "__main__.plain_text = lambda value: repr(value)\n"
        "builtins.eval = lambda text, *_: text\n"
    )
    + WRONG,
    "lines of its own": (
        "import os\n"
        "for number in range(2000):\n"
        "    os.write(1, b'%d True\\n' % number)\n"
        "os._exit(0)\n"
    ),
    "all small numbers at once": (
        "import os\n"
        "for number in range(30):\n"
        "    os.write(1, b'0 %d\\n1 list(%d, %d)\\n' % ((number,) * 3))\n"
    )
    + WRONG,
    "a subclass": "class Own(int): pass\ndef double(n):\n    return Own(n * 2)\n",
    "a type's name": "int = type('int', (float,), {})\ndouble = lambda n: int(8)\n",
    "a float": "def double(n):\n    return n * 2.0\n",
    "nan": "def double(n):\n    return float('nan')\n",
    "a list in itself": "def double(n):\n    a = []\n    a.append(a)\n    return a\n",
    "far too much": "def double(n):\n    return 'x' * (1 << 27)\n",
    "too much to count": (
        "def double(n):\n    a = 8\n    for _ in range(48):\n        a = [a, a]\n"
        "    return a\n"
    ),
    "a hang": "def double(n):\n    while True: pass\n",
    "an exit": "def double(n):\n    raise SystemExit(0)\n",
    "an end": "import os\ndef double(n):\n    os._exit(0)\n",
    "no module": None,
    "no name": "x = 8\n",
    "a repr": "class R:\n    __repr__ = lambda _: '8'\ndouble = lambda n: R()\n",
    "an error named 8": "class E(Exception): pass\nE.__name__ = '8'\n"
    "def double(n):\n    raise E\n",
    "an error that raises": (
        "class E(BaseException):\n    __str__ = None\ndef double(n):\n    raise E\n"
    ),
}


@pytest.mark.parametrize("how", FORGERS)
def test_what_passes_tests_by_deceit_is_judged_wrong(
    sandbox: Sandbox, how: str
) -> None:
    files = {"app.py": FORGERS[how], "tests/test_app.py": TEST}
    assert sandbox.run_sync(files, RunTests()).ok, "the forgery should pass tests"
    verdict = gives(sandbox, files, ASKED)
    assert not verdict
    assert "app.py: double([1])" in verdict.wrong


@pytest.mark.parametrize("how", NO_FORGERY)
def test_no_value_is_taken_for_another(best_sandbox: Sandbox, how: str) -> None:
    source = NO_FORGERY[how]
    files = {} if source is None else {"app.py": source}
    verdict = gives(best_sandbox, files, ASKED, timeout_s=1.5)
    assert len(verdict.wrong) == verdict.asked == 2, verdict
    assert verdict.share == 0
    assert all(len(text) <= 400 for text in verdict.wrong.values())


def test_right_values_are_right(sandbox: Sandbox) -> None:
    files = {
        "src/app.py": "print('loud ' * 50_000)\nSELF = [1, (2.5, None)]\n",
        "pkg/__init__.py": "def f(*a):\n    print('more')\n    return a\n",
        "_asked.py/x": "in the way",
    }
    values = {
        "1": 1,
        "True": True,
        "0.1 + 0.2": 0.1 + 0.2,
        "-0.0": 0.0,
        "float('nan')": math.nan,
        "-float('inf')": -math.inf,
        "10 ** 9000": 10**9000,
        "'é\\udc80\\n'": "é\udc80\n",
        "b'\\xff'": b"\xff",
        "{3: {2, 1}, 1: frozenset()}": {1: frozenset(), 3: {1, 2}},
        "[i * 'x' for i in range(100)]": [i * "x" for i in range(100)],
    }
    expected = {
        "src/app.py": {"SELF": [1, (2.5, None)]},
        "pkg/__init__.py": {f"f({text})[0]": value for text, value in values.items()},
    }
    verdict = gives(sandbox, files, expected)
    assert verdict, verdict
    assert (verdict.asked, verdict.share, verdict.wrong) == (12, 1.0, {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1", True),
        ("1", 1.0),
        ("0", -0.0),
        ("(1,)", [1]),
        ("{1}", frozenset({1})),
        ("'1'", 1),
        ("'a'", b"a"),
        ("{1: 2}", {1: 2.0}),
        ("['x' * 300]", ["x" * 299 + "y"]),
        ("None", math.nan),
        ("[[], []]", [[[]]]),
        ("['1, 1']", ["1", "1"]),
    ],
)
def test_other_values_are_wrong(
    best_sandbox: Sandbox, given: str, expected: object
) -> None:
    assert not gives(best_sandbox, {"a.py": ""}, {"a.py": {given: expected}})


def test_a_part_can_be_right(best_sandbox: Sandbox) -> None:
    files = {"a.py": "def half(n):\n    return n // 2\n", "b.py": "1/0"}
    expected = {"a.py": {"half(4)": 2, "half(3)": 1.5}, "b.py": {"x": 1, "y": 1}}
    verdict = gives(Sandbox(), files, expected)
    assert verdict.share == 0.25
    assert verdict.wrong == {
        "a.py: half(3)": "1",
        "b.py: x": "raised ZeroDivisionError: division by zero",
        "b.py: y": "raised ZeroDivisionError: division by zero",
    }


@pytest.mark.parametrize(
    ("expected", "why"),
    [
        ({}, "1 to [0-9]+ expressions, not 0"),
        ({"a.py": {}}, "not 0"),
        ({"a.py": {f"f({n})": n for n in range(9_000)}}, "not 9000"),
        ({"a.py": {"x = 1": 1}}, "'x = 1' is not an expression"),
        ({"a.py": {"(" * 9_000: 1}}, "is not an expression"),
        ({"a": {"x": 1}}, "'a' is not the path of a module"),
        ({"a.py": {"f()": object()}}, "holds a object, which is not a plain value"),
        ({"a.py": {"f()": [1, 2j]}}, "holds a complex"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    best_sandbox: Sandbox, expected: dict[str, Any], why: str
) -> None:
    with pytest.raises(SandboxError, match=why):
        gives(best_sandbox, {"a.py": ""}, expected)


def test_what_is_expected_never_enters(
    best_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    run_sync = best_sandbox.run_sync

    def record(files: Any, command: Any, **options: Any) -> Any:
        seen.extend(files.values())
        return run_sync(files, command, **options)

    monkeypatch.setattr(best_sandbox, "run_sync", record)
    expected = {"a.py": {"f()": "hunter" + "2", "g()": 31_337}}
    assert not gives(best_sandbox, {"a.py": ""}, expected)
    assert seen
    assert not [text for text in seen if "hunter2" in text or "31337" in text]


def test_as_many_as_its_output_has_room_for(best_rung: str) -> None:
    config = SandboxConfig(rung=best_rung, limits=Limits(output_bytes=1_000))
    values = {f"'{n}' * 300": str(n) * 300 for n in range(4)}
    with Sandbox(config) as sandbox:
        assert gives(sandbox, {"a.py": "print('x' * 9_000)"}, {"a.py": values})
        with pytest.raises(SandboxError, match="larger Limits.output_bytes"):
            gives(sandbox, {"a.py": ""}, {"a.py": {**values, "4": 4}})
