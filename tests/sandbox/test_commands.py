"""What goes in and what comes out: scripts, tests, files, the cache."""

import shutil
from typing import Any

import pytest

from agentgym.errors import SandboxError
from agentgym.sandbox import (
    Argv,
    Limits,
    PythonScript,
    RunTests,
    Sandbox,
    SandboxConfig,
    SandboxResult,
)
from agentgym.sandbox.commands import Job, check_files, find_tests

TESTS = """\
from app import add

def helper():
    raise RuntimeError

def test_right():
    assert add(1, 2) == 3

def test_wrong():
    assert add(1, 2) == 4, "sum"

def test_crash():
    add(1, None)

def test_exit():
    raise SystemExit(0)

def test_argument(tmp_path):
    pass
"""
FILES = {"app.py": "def add(a, b):\n    return a + b\n", "tests/test_app.py": TESTS}


def _messages(result: SandboxResult) -> dict[str, tuple[str, str]]:
    return {
        test.name.partition("::")[2]: (test.outcome, test.message)
        for test in result.tests or ()
    }


def test_outcomes_of_tests(best_sandbox: Sandbox) -> None:
    result = best_sandbox.run_sync(FILES, RunTests())
    found = _messages(result)
    assert result.exit_code == 1
    assert not result.ok
    assert result.passed == 1
    assert found["test_right"] == ("passed", "")
    assert found["test_wrong"] == (
        "failed",
        (
            "tests/test_app.py:10: AssertionError: sum\n"
            "assert add(1, 2) == 4 (left: 3, right: 4)"
        ),
    )
    assert found["test_crash"][0] == "error"
    assert found["test_crash"][1].startswith("app.py:2: TypeError: unsupported")
    assert found["test_exit"][0] == "error"
    assert found["test_argument"][0] == "error"
    assert "helper" not in found


def test_selecting_tests(best_sandbox: Sandbox) -> None:
    identity = "tests/test_app.py::test_right"
    result = best_sandbox.run_sync(FILES, RunTests(select=(identity,)))
    assert result.ok
    assert [test.name for test in result.tests or ()] == [identity]


def test_a_file_that_does_not_import(best_sandbox: Sandbox) -> None:
    for text, part in [("def (:", "SyntaxError"), ("import nothing_here", "No module")]:
        result = best_sandbox.run_sync({"test_a.py": text}, RunTests())
        assert not result.ok
        (test,) = result.tests or ()
        assert (test.name, test.outcome) == ("test_a.py", "error")
        assert part in test.message


@pytest.mark.parametrize(
    "body",
    [
        "import os; os._exit(0)",
        "import os; os.close(3)",
        "import os; os.write(3, b'{]' + bytes(70) + b'\\n[1]\\n'); os._exit(0)",
        "import sys; sys.stdout.close(); import os; os.abort()",
        "while True: pass",
        "import os; os.write(3, b'[' * 50000 + b'\\n'); os._exit(0)",
        "import os; os.write(3, b'{\"outcome\": []}\\n'); os._exit(0)",
    ],
)
def test_ending_early_is_not_passing(best_sandbox: Sandbox, body: str) -> None:
    files = {"test_a.py": f"def test_first():\n    pass\ndef test_it():\n    {body}\n"}
    result = best_sandbox.run_sync(files, RunTests(), timeout_s=0.4)
    assert not result.ok
    assert any(test.outcome == "error" for test in result.tests or ()), result


def test_a_timeout_names_the_test(best_sandbox: Sandbox) -> None:
    files = {"test_a.py": "def test_a(): pass\ndef test_b():\n    while True: pass"}
    result = best_sandbox.run_sync(files, RunTests(), timeout_s=0.3)
    found = _messages(result)
    assert found["test_a"][0] == "passed"
    assert found["test_b"] == (
        "error",
        "test_a.py::test_b did not finish: the process timed out",
    )


def test_a_script_behaves_as_under_python(best_sandbox: Sandbox) -> None:
    script = (
        "import atexit, sys, threading, statistics, lib.util\n"
        "if __name__ == '__main__':\n"
        "    atexit.register(print, 'at exit')\n"
        "    threading.Thread(target=print, args=('thread',)).start()\n"
        "    print(sys.argv, lib.util.X, statistics.OURS)\n"
        "    exit('bye')\n"
    )
    files = {"main.py": script, "lib/util.py": "X = 1", "statistics.py": "OURS = 2"}
    result = best_sandbox.run_sync(files, PythonScript("main.py", ("a b",)))
    lines = sorted(result.stdout.splitlines())
    assert lines == ["['main.py', 'a b'] 1 2", "at exit", "thread"]
    assert (result.exit_code, result.stderr) == (1, "bye\n")


def test_a_traceback_shows_only_the_program(best_sandbox: Sandbox) -> None:
    result = best_sandbox.run_sync(
        {"a.py": "def f():\n  1/0\nf()"}, PythonScript("a.py")
    )
    assert result.exit_code == 1
    assert result.stderr.startswith('Traceback (most recent call last):\n  File "a.py"')
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    "broken", ["sys.stdout", "sys.stderr", "threading.enumerate", "os._exit"]
)
def test_a_program_that_breaks_its_interpreter_still_ends(
    best_sandbox: Sandbox, broken: str
) -> None:
    files = {"a.py": f"import os, sys, threading\n{broken} = None\nexit(3)\n"}
    result = best_sandbox.run_sync(files, PythonScript("a.py"))
    assert (result.status, result.exit_code) == ("exited", 3), result


def test_status_of_a_crash(best_sandbox: Sandbox) -> None:
    files = {"a.py": "import os; os.abort()"}
    result = best_sandbox.run_sync(files, PythonScript("a.py"))
    assert (result.status, result.signal, result.exit_code) == ("killed", 6, None)


def test_changed_files(best_sandbox: Sandbox) -> None:
    script = "open('b', 'w').write('2'); open('bin', 'wb').write(b'\\xff')"
    files = {"a.py": script, "b": "1", "c": "1"}
    result = best_sandbox.run_sync(files, PythonScript("a.py"), collect=True)
    assert result.files == {"b": "2"}
    assert best_sandbox.run_sync(files, PythonScript("a.py")).files is None


def test_large_files_that_are_left_alone_are_no_changes(best_sandbox: Sandbox) -> None:
    files = {"a.py": "open('z', 'w').write('new')", "a.csv": "x" * 1_500_000}
    result = best_sandbox.run_sync(files, PythonScript("a.py"), collect=True)
    assert result.files == {"z": "new"}


def test_changed_files_come_back_whole_or_not_at_all(best_sandbox: Sandbox) -> None:
    limits = Limits(collect_bytes=100)
    script = (
        "import os\n"
        "sizes = {'b': 99, 'c': 101, 'd': 2, 'e': 1, 'f': 1}\n"
        "for name in sizes: open(name, 'w').write('y' * sizes[name])\n"
        "os.remove('g')\n"
    )
    files = {"a.py": script, "c": "x" * 101, "g": "x"}
    config = SandboxConfig(rung=best_sandbox.rung.name, limits=limits)
    with Sandbox(config) as sandbox:
        result = sandbox.run_sync(files, PythonScript("a.py"), collect=True)
    assert result.files == {"b": "y" * 99, "e": "y", "g": None}


def test_a_file_whose_name_is_no_unicode_is_left_out(best_sandbox: Sandbox) -> None:
    files = {"a.py": "for name in (b'\\xff', b'b'): open(name, 'w').write('1')"}
    result = best_sandbox.run_sync(files, PythonScript("a.py"), collect=True)
    assert result.files == {"b": "1"}


_FORGED = [
    '{"left": {}}',
    '{"left": {"files": [], "gone": []}}',
    '{"left": {"files": {"b": 1}, "gone": []}}',
    '{"left": {"files": {}, "gone": {}}}',
    '{"left": {"files": {}, "gone": [["a.py"]]}}',
    '{"left": {"files": {"b": "\\ud800"}, "gone": []}}',
    '{"left": {"files": {"../b": "1"}, "gone": []}}',
    '{"left": {"files": {"/b": "1"}, "gone": []}}',
    '{"left": [{"files": {}}]}',
    '{"left": null}',
]


@pytest.mark.parametrize("line", _FORGED)
def test_a_forged_report_of_the_workspace_reports_nothing(
    best_sandbox: Sandbox, line: str
) -> None:
    """What comes after the line, the sandbox's own report, is spoiled as well."""
    files = {"a.py": f"import os; os.write(3, {line!r}.encode() + b'\\n' + b'[')"}
    for collect in (False, True):
        result = best_sandbox.run_sync(files, PythonScript("a.py"), collect=collect)
        assert (result.status, result.exit_code) == ("exited", 0)
        assert result.files is None


def test_a_report_that_was_not_asked_for_is_not_believed(best_sandbox: Sandbox) -> None:
    line = b'{"left": {"files": {"b": "1"}, "gone": []}}\n'
    files = {"a.py": f"import os; os.write(3, {line!r})"}
    assert best_sandbox.run_sync(files, PythonScript("a.py")).files is None
    result = best_sandbox.run_sync(files, PythonScript("a.py"), collect=True)
    assert result.files == {}


@pytest.mark.slow
def test_too_large_a_workspace_is_an_error(best_sandbox: Sandbox) -> None:
    files = {"a.py": "", "big": "x" * (best_sandbox.config.limits.file_mb + 1 << 20)}
    result = best_sandbox.run_sync(files, PythonScript("a.py"))
    assert result.status == "sandbox_error"
    assert "Setup failed" in result.error


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../x", "", ".", "a//b", "./a", "a\0b", "a/"]
)
def test_names_that_leave_the_workspace(name: str) -> None:
    with pytest.raises(SandboxError, match="cannot be named"):
        check_files({name: ""})


def test_finding_tests() -> None:
    files = dict.fromkeys(
        ["a.py", "test_a.py", "t/test_b.py", "t/u/c_test.py", "t/data.txt"], ""
    )
    assert find_tests(RunTests(), files) == [
        "t/test_b.py",
        "t/u/c_test.py",
        "test_a.py",
    ]
    assert find_tests(RunTests(("t/",)), files) == ["t/test_b.py", "t/u/c_test.py"]
    assert find_tests(RunTests(("a.py", "t/u")), files) == ["a.py", "t/u/c_test.py"]
    assert find_tests(RunTests(select=("test_a.py::test_x",)), files) == ["test_a.py"]


ECHO = Argv(("echo",))


@pytest.mark.parametrize(
    ("files", "command", "timeout_s", "why"),
    [
        ({"a.py": ""}, PythonScript("b.py"), 1, "no script 'b.py'"),
        *(
            ({}, ECHO, time_s, "timeout_s is")
            for time_s in (0, -1, float("nan"), float("inf"), 1e6)
        ),
        ({"b": "", "b/c": ""}, ECHO, 1, "workspace"),
        ({"x" * 300: ""}, ECHO, 1, "workspace"),
        ({"d/" * 2500 + "x": ""}, ECHO, 1, "workspace"),
    ],
)
def test_what_cannot_run_is_refused(
    files: Any, command: Any, timeout_s: Any, why: str
) -> None:
    with pytest.raises(SandboxError, match=why):
        Job(files, command, timeout_s)


@pytest.mark.slow
def test_cache(best_sandbox: Sandbox) -> None:
    config = SandboxConfig(rung=best_sandbox.rung.name)
    with Sandbox(config) as sandbox:
        first = sandbox.run_sync({"a.py": "print(1)"}, PythonScript("a.py"))
        again = sandbox.run_sync({"a.py": "print(1)"}, PythonScript("a.py"))
        other = sandbox.run_sync({"a.py": "print(1)"}, PythonScript("a.py", ("x",)))
        assert (first.cached, again.cached, other.cached) == (False, True, False)
        assert again.stdout == first.stdout
        hang = {"a.py": "while True: pass"}
        for _ in range(2):
            result = sandbox.run_sync(hang, PythonScript("a.py"), timeout_s=0.1)
            assert not result.cached


def test_a_text_that_is_no_unicode_is_the_programs_failure(
    best_sandbox: Sandbox,
) -> None:
    before = best_sandbox.restarts
    files = {"a.py": "x = '\ud800'", "kept": "\udfff"}
    result = best_sandbox.run_sync(files, PythonScript("a.py"), collect=True)
    assert (result.status, result.exit_code, result.files) == ("exited", 1, {})
    assert "SyntaxError" in result.stderr
    for word in ("\0", "\ud800"):
        refused = best_sandbox.run_sync({}, Argv(("echo", word)))
        assert (refused.exit_code, refused.stderr[:6]) == (126, "echo: ")
    assert best_sandbox.restarts == before


def test_what_tests_say_can_be_written_down(best_sandbox: Sandbox) -> None:
    script = (
        "import os\n"
        "def test_text(): assert False, '\\ud800'\n"
        "def test_forged():\n"
        "    for seconds in (b'NaN', b'1e999', b'-1', b'1' + b'0' * 400):\n"
        '        os.write(3, b\'\\n{"test": "forged", "outcome": "passed", \'\n'
        '            b\'"message": "", "seconds": \' + seconds + b\'}\\n\')\n'
    )
    result = best_sandbox.run_sync({"test_a.py": script}, RunTests())
    said = {test.name: test.message for test in result.tests or ()}
    assert said["test_a.py::test_text"].splitlines()[0].endswith("\ufffd")
    assert "forged" not in said


@pytest.mark.parametrize("program", ["git", "node", "perl"])
def test_other_programs_run(program: str, rung: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    argv, said = {
        "git": (("git", "config", "--list"), ""),
        "node": (("node", "-e", "console.log(6 * 7)"), "42\n"),
        "perl": (("perl", "-e", "print 6 * 7"), "42"),
    }[program]
    config = SandboxConfig(rung=rung, limits=Limits(memory_mb=1024))
    with Sandbox(config) as sandbox:
        result = sandbox.run_sync({}, Argv(argv))
    assert (result.exit_code, result.stdout, result.stderr) == (0, said, "")


def test_a_pipe_that_nobody_reads_ends_its_writer(best_sandbox: Sandbox) -> None:
    script = "set -o pipefail; while true; do echo x; done | head -n 1; echo $?"
    result = best_sandbox.run_sync({}, Argv(("bash", "-c", script)), timeout_s=5)
    assert (result.stdout, result.stderr) == ("x\n141\n", ""), result


def test_threads_are_as_many_as_the_limit_says(rung: str) -> None:
    script = (
        "import threading\n"
        "hold = threading.Event()\n"
        "for _ in range(30): threading.Thread(target=hold.wait).start()\n"
        "print(threading.active_count()); hold.set()"
    )
    with Sandbox(SandboxConfig(rung=rung)) as sandbox:
        result = sandbox.run_sync({"a.py": script}, PythonScript("a.py"))
    assert result.stdout == "31\n", result
