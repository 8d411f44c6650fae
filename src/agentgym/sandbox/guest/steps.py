"""Run the command lines of compilers and test runners, and parse test results."""

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

Report = Callable[[dict[str, Any]], None]
Replace = Callable[[list[str]], int]

_VALUES_FD = 4
_LONGEST = 2000  # maximum length of a failed test's message, in characters


def run(
    command: dict[str, Any], temporary: str, report: Report, replace: Replace
) -> int:
    """Run the command lines of an execution; return the first exit code above 0."""
    here = os.path.dirname(__file__)

    def filled(argv: list[str]) -> list[str]:
        return [
            word.replace("{tmp}", temporary).replace("{guest}", here) for word in argv
        ]

    chains = [[filled(argv) for argv in chain] for chain in command["chains"]]
    if command["values"]:
        os.dup2(1, _VALUES_FD)
        os.dup2(2, 1)
    if command["reader"] in _READERS:
        return _read_tests(chains, command, report)
    if command["reader"]:
        os.set_inheritable(3, True)  # The program writes the report itself.
    for number, chain in enumerate(chains):
        for argv in chain:
            if argv is chain[-1] and number == len(chains) - 1:
                return replace(argv)
            if code := _wait(argv, to_stderr=argv is not chain[-1]):
                return code
    return 0


def _wait(argv: list[str], *, to_stderr: bool) -> int:
    pid = os.fork()
    if pid == 0:
        if to_stderr:
            os.dup2(2, 1)
        _become(argv)
    return _code(os.waitpid(pid, 0)[1])


def _become(argv: list[str]) -> NoReturn:
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        os.write(2, f"{argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _lines(argv: list[str], ended: list[int]) -> Iterator[str]:
    """Run a command, and yield its output; its exit code is appended to ``ended``."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        _become(argv)
    os.close(writer)
    with open(reader, encoding="utf-8", errors="replace") as output:
        yield from output
    ended.append(_code(os.waitpid(pid, 0)[1]))


def _read_tests(
    chains: list[list[list[str]]], command: dict[str, Any], report: Report
) -> int:
    worst = 0
    for chain, tests in zip(chains, command["tests"], strict=True):
        reader = _READERS[command["reader"]](tests, report)
        ended: list[int] = []
        for argv in chain:
            for line in _lines(argv, ended):
                reader.read(line)
            if ended[-1]:
                break
        reader.end(ended[-1])
        worst = worst or ended[-1]
    report({"running": None})
    return worst


class _Reader(ABC):
    """Parses the test results in the output of a chain of command lines.

    ``tests`` are the ids of the expected tests; or one path, if the ids are unknown.
    """

    def __init__(self, tests: list[str], report: Report) -> None:
        self.tests = tests
        self._report = report
        self._ended: dict[str, str] = {}
        self._failed = False
        self._other = ""  # the first lines of output that do not belong to a test

    @abstractmethod
    def read(self, line: str) -> None:
        """Parse one line of output, and report a test result in it."""

    @abstractmethod
    def end(self, code: int) -> None:
        """Report an error for expected tests without a result.

        They have none e.g. after a compiler error. ``code`` is the exit code of the
        last command line.
        """

    def _outcome(self, test: str, outcome: str, message: str, seconds: float) -> None:
        self._ended[test] = outcome
        self._failed |= outcome != "passed"
        line = {"test": test, "outcome": outcome, "message": message[:_LONGEST]}
        self._report({**line, "seconds": seconds})

    def _show(self, text: str) -> None:
        sys.stdout.write(text)
        if len(self._other) < _LONGEST:
            self._other += text

    def _missing(self, why: str) -> None:
        for test in self.tests:
            if test not in self._ended:
                self._outcome(test, "error", why, 0.0)


class _Go(_Reader):
    """Parses the events of ``go test -json``."""

    def __init__(self, tests: list[str], report: Report) -> None:
        super().__init__(tests, report)
        self._ids = {test.partition("::")[2]: test for test in tests}
        self._outputs: dict[str, str] = {}
        self._returned: set[str] = set()  # tests whose function has returned

    def read(self, line: str) -> None:
        try:
            event = json.loads(line)
            action, name = event["Action"], event.get("Test", "")
        except (ValueError, TypeError, KeyError, RecursionError):
            self._show(line)
            return
        output = event.get("Output", "")
        if not isinstance(output, str) or not isinstance(name, str):
            return
        if action == "output" and name:
            sys.stdout.write(output)
            if output.startswith("--- "):
                self._returned.add(name)
            if not output.lstrip().startswith(("=== ", "--- ")):
                self._outputs[name] = self._outputs.get(name, "") + output
        elif action in ("output", "build-output"):
            self._show(output)
        elif name and "/" not in name:
            self._end_of(name, action, event.get("Elapsed", 0.0))

    def _end_of(self, name: str, action: str, seconds: float) -> None:
        test = self._ids.get(name, name)
        if action == "run":
            self._report({"running": test})
        elif action in ("pass", "skip") and name in self._returned:
            self._outcome(test, "passed", "", seconds)
        elif action in ("pass", "skip"):
            self._outcome(test, "error", "it ended the process", seconds)
        elif action == "fail":
            said = "".join(
                text
                for each, text in self._outputs.items()
                if each == name or each.startswith(f"{name}/")
            )
            outcome = "error" if "panic: " in said else "failed"
            self._outcome(test, outcome, said.strip(), seconds)

    def end(self, code: int) -> None:
        self._missing(self._other.strip() or f"it did not run (exit code {code})")
        if code and not self._failed:
            self._outcome("go test", "error", self._other.strip(), 0.0)


class _Rust(_Reader):
    """Parses the output of ``cargo test`` and of programs made by ``rustc --test``."""

    def __init__(self, tests: list[str], report: Report) -> None:
        super().__init__(tests, report)
        self._file = tests[0]
        self._left = 0
        self._shown = ""
        self._messages: dict[str, str] = {}
        self._ran = False

    def read(self, line: str) -> None:
        self._show(line)
        words = line.split()
        match words:
            case ["Running", "unittests", str(file), *_]:
                self._file = file
            case ["Running", str(file), *_]:
                self._file = file
            case ["running", str(count), "test" | "tests"] if count.isdigit():
                self._left += int(count)
                self._ran = True
            case ["test", "result:", *_]:
                self._shown = ""
            case ["test", str(name), *_] if "..." in words[:-1]:
                outcome = words[words.index("...") + 1]
                if outcome in _RUST:
                    self._left -= 1
                    self._outcome(f"{self._file}::{name}", _RUST[outcome], "", 0.0)
            case ["----", str(name), "stdout", "----"]:
                self._shown = name
            case ["failures:"]:
                self._shown = ""
            case _ if self._shown:
                said = self._messages.get(self._shown, "") + line
                self._messages[self._shown] = said
                if words:
                    is_asserted = "assertion" in said
                    outcome = "failed" if is_asserted else "error"
                    test = f"{self._file}::{self._shown}"
                    self._outcome(test, outcome, said.strip(), 0.0)

    def end(self, code: int) -> None:
        if not self._ran:
            self._missing(self._other.strip() or f"it ended with exit code {code}")
        elif self._left or (code and not self._failed):
            why = f"{self._left} tests did not end; exit code {code}"
            self._outcome(self._file, "error", why, 0.0)


_RUST = {"ok": "passed", "FAILED": "failed", "ignored": "passed", "ignored,": "passed"}
_READERS: dict[str, type[_Reader]] = {"go": _Go, "rust": _Rust}
