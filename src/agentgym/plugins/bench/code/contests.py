"""Run the tests of LiveCodeBench, which compare outputs for given inputs.

The code is a program that reads standard input, or a method that is called. The data
file has hidden tests in Python's pickle format, which can run code when it is read. So
they are unpickled only in the sandbox, and only JSON text is read from it. The inputs
of hidden tests stay in the sandbox, since they may have a hundred megabytes. Time
limits are those of the benchmark: 6 s per test, and 5 s plus 7 s per test in total.
"""

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from agentgym.errors import SandboxError, UsageError
from agentgym.plugins.bench.code import recorded
from agentgym.plugins.bench.code.problems import BenchmarkProblem, Row, read_lines
from agentgym.sandbox import PythonScript, Sandbox

SOURCE = "the data set livecodebench/code_generation_lite on Hugging Face (test*.jsonl)"
_TEST_S = 6.0
_UNPICKLE_S = 20.0
_LEVELS = {"easy": 1, "medium": 2, "hard": 3}
_REQUEST = "{title}\n\n{content}\n\n{how} Answer with Python code in one code block."
_BY_INPUT = "Read the input from standard input and print the answer."
_BY_CALL = "Use this starter code:\n\n```python\n{starter}\n```\n\n"
_HIDDEN = """
import base64 as _base64, json as _json, os as _os, pickle as _pickle, zlib as _zlib

def _hidden():
    with open("private.txt") as file:
        text = file.read()
    _os.remove("private.txt")
    if not text.lstrip().startswith("["):
        value = _pickle.loads(_zlib.decompress(_base64.b64decode(text)))
        text = value if isinstance(value, str) else _json.dumps(value)
    return [[str(test["input"]), str(test["output"])] for test in _json.loads(text)]
"""
_OUTPUTS = """
print(_json.dumps([output for _, output in _hidden()]))
"""
_SCRIPT = """
import io as _io, sys as _sys

_private = [given for given, _ in _hidden()]
_code, _name, _public, _limit = taken("asked.json")


def _method():
    compiled = compile(_code, "solution.py", "exec")
    names = {"__name__": "solution"}
    exec("from typing import *; import collections, heapq, math, itertools", names)
    exec(compiled, names)
    owner = names["Solution"]() if "Solution" in names else None
    call = names[_name] if owner is None else getattr(owner, _name)
    return lambda given: call(*map(_json.loads, given.split("\\n")))


def _program():
    compiled = compile(_code, "solution.py", "exec")

    def printed(given):
        _sys.stdin = _io.TextIOWrapper(_io.BytesIO(given.encode()))
        output = _io.BytesIO()
        _sys.stdout = _io.TextIOWrapper(output, write_through=True)
        try:
            exec(compiled, {"__name__": "__main__"})
        except SystemExit:
            pass
        _sys.stdout.flush()
        return output.getvalue().decode(errors="replace")

    return printed


_inputs = [*_public, *_private]
record(_method if _name else _program, _inputs, [_limit] * len(_inputs))
"""


@dataclass
class Contest:
    """Accepts code if it prints the right lines or returns the right values.

    Attributes:
        private: The hidden tests as JSON. The JSON may be pickled, compressed with zlib
            and encoded in base64.
        name: The method to call; "" if the code is a program that reads standard input.
    """

    place: str
    public: tuple[tuple[str, str], ...]
    private: str
    name: str
    _hidden: list[str] | None = None

    def __call__(self, sandbox: Sandbox, code: str) -> bool:
        """Return whether the code passes the public and the hidden tests."""
        if self._hidden is None:
            self._hidden = self._hidden_outputs(sandbox)
        outputs = [*(output for _, output in self.public), *self._hidden]
        inputs = [given for given, _ in self.public]
        script = inspect.getsource(recorded) + _HIDDEN + _SCRIPT
        files = {
            "judge.py": script,
            "asked.json": json.dumps([code, self.name, inputs, _TEST_S]),
            "private.txt": self.private,
        }
        limit_s = (_TEST_S + 1) * len(outputs) + 5 + _UNPICKLE_S
        result = sandbox.run_sync(files, PythonScript("judge.py"), timeout_s=limit_s)
        lines = result.checked().stdout.split("\n")[:-1]
        if not result.ok or len(lines) != len(outputs):
            return False
        return all(map(self._right, lines, outputs))

    def _hidden_outputs(self, sandbox: Sandbox) -> list[str]:
        """Return the right outputs of the hidden tests, as text."""
        files = {"read.py": _HIDDEN + _OUTPUTS, "private.txt": self.private}
        result = sandbox.run_sync(
            files, PythonScript("read.py"), timeout_s=_UNPICKLE_S
        ).checked()
        problem = "their outputs are too large" if result.truncated else result.stderr
        try:
            found = json.loads(result.stdout)
            return [str(output) for output in found]
        except (ValueError, TypeError, RecursionError):
            last = (problem.strip().splitlines() or [result.error or "no output"])[-1]
            raise SandboxError(
                f"{self.place}: its hidden tests cannot be read: {last}. The data of "
                f"LiveCodeBench come from {SOURCE}."
            ) from None

    def _right(self, line: str, right: str) -> bool:
        try:
            out, _ = json.loads(line)
            if not self.name:
                return isinstance(out, str) and _same_lines(out, right)
            given, wanted = recorded.unpacked(out), json.loads(right)
            return bool((list(given) if type(given) is tuple else given) == wanted)
        except (ValueError, TypeError, KeyError, RecursionError):
            return False


def _same_lines(out: str, right: str) -> bool:
    """Return whether all lines of two outputs are equal, as text or as numbers."""
    given, wanted = (text.strip().split("\n") for text in (out, right))
    return len(given) == len(wanted) and all(map(_same_line, given, wanted))


def _same_line(given: str, wanted: str) -> bool:
    if given.strip() == wanted.strip():
        return True
    try:
        return list(map(Decimal, given.split())) == list(map(Decimal, wanted.split()))
    except InvalidOperation:
        return False


def read_livecodebench(
    data: str, start: str = "", end: str = ""
) -> Iterator[BenchmarkProblem]:
    """Yield the problems of LiveCodeBench."""
    found = 0
    for row in read_lines(data, "LiveCodeBench", SOURCE):
        date = row.field("contest_date")
        if (start and date[:10] < start) or (end and date[:10] > end):
            continue
        found += 1
        tests, name = _public(row)
        how = _BY_CALL.format(starter=row.field("starter_code")) if name else _BY_INPUT
        difficulty = str(row.get("difficulty", ""))
        title, content = row.field("question_title"), row.field("question_content")
        yield BenchmarkProblem(
            id=row.field("question_id"),
            family=f"livecodebench_{difficulty or 'any'}",
            instruction=_REQUEST.format(title=title, content=content, how=how),
            judge=Contest(row.place, tests, row.field("private_test_cases"), name),
            level=_LEVELS.get(difficulty, 2),
        )
    if not found:
        dates = f"from {start or 'any day'} to {end or 'any day'}"
        raise UsageError(f"{data} has no contest {dates}.")


def _public(row: Row) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the public tests, and the name of the method to call."""
    try:
        tests = json.loads(row.field("public_test_cases"))
        metadata = json.loads(row.get("metadata") or "{}")
        pairs = tuple((str(test["input"]), str(test["output"])) for test in tests)
        by_call = any(test.get("testtype") == "functional" for test in tests)
        return pairs, str(metadata["func_name"]) if by_call else ""
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"its public tests cannot be read ({type(error).__name__})"
        raise row.error(problem) from None
