"""A small test runner: plain ``test_*`` functions with bare asserts.

It reports one line before and one after each test, so that the host knows what was
running when an execution was killed. Exit codes are pytest's: 0 all passed, 1 some did
not, 5 no test was found.
"""

import os
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

from . import rewrite

Report = Callable[[dict[str, Any]], None]
_MESSAGE_CHARACTERS = 2000


def run(files: list[str], select: list[str], report: Report) -> int:
    """Run the tests of some files.

    Args:
        files: Test files, relative to the working directory.
        select: Test ids ``file::name`` to run; empty for all.
        report: Receives a dictionary per event.
    """
    ran = passed = 0
    for path in files:
        outcomes = _run_file(path, frozenset(select), report)
        ran += len(outcomes)
        passed += sum(outcomes)
    report({"done": ran})
    if ran == 0:
        return 5
    return 0 if passed == ran else 1


def _run_file(path: str, select: frozenset[str], report: Report) -> list[bool]:
    """Run one file's tests and return which of them passed."""
    name = os.path.basename(path).removesuffix(".py")
    report({"start": path})
    try:
        module = rewrite.load(path, name)
    except BaseException as error:  # noqa: BLE001 - the file's own, to be shown
        report(_event(path, "error", error, 0.0))
        return [False]
    report({"loaded": path})
    results = []
    for test, function in list(vars(module).items()):
        identity = f"{path}::{test}"
        if not test.startswith("test_") or not isinstance(function, types.FunctionType):
            continue
        if select and identity not in select:
            continue
        report({"start": identity})
        event = _run_test(identity, function)
        report(event)
        results.append(event["outcome"] == "passed")
    return results


def _run_test(identity: str, function: types.FunctionType) -> dict[str, Any]:
    """Run one test and return its event."""
    started = time.perf_counter()
    try:
        result: object = function()
        if isinstance(result, types.CoroutineType | types.GeneratorType):
            raise TypeError("a test must be a plain function, not async or a generator")
    except AssertionError as error:
        return _event(identity, "failed", error, started)
    except BaseException as error:  # noqa: BLE001 - the test's own, to be shown
        return _event(identity, "error", error, started)
    return _event(identity, "passed", None, started)


def _event(
    identity: str, outcome: str, error: BaseException | None, started: float
) -> dict[str, Any]:
    """Return the report line of one test."""
    return {
        "test": identity,
        "outcome": outcome,
        "message": _describe(error) if error is not None else "",
        "seconds": round(time.perf_counter() - started, 6) if started else 0.0,
    }


def _describe(error: BaseException) -> str:
    """Return ``file:line: Type: message`` for the innermost frame of the workspace."""
    workspace = os.getcwd() + os.sep
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        filename = os.path.join(workspace, frame.f_code.co_filename)
        if filename.startswith(workspace) and "<" not in filename:
            place = f"{filename.removeprefix(workspace)}:{line}: "
    text = traceback.format_exception_only(error)[-1].strip()
    return f"{place}{text}"[:_MESSAGE_CHARACTERS]
