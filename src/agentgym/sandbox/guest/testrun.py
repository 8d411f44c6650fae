"""A small test runner: plain ``test_*`` functions with bare asserts.

It reports what is about to run and how each test ended, so that the host knows what was
running when an execution was killed. Exit codes are pytest's: 0 all passed, 1 some did
not, 5 no test was found.
"""

import ast
import os
import reprlib
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

Event = dict[str, Any]
Report = Callable[[Event], None]
_MESSAGE_CHARACTERS = 2000
_LEFT, _RIGHT, _EXPLAIN = "@left", "@right", "@explain"


def run(files: list[str], select: list[str], report: Report) -> int:
    """Run the tests of some files, or those selected by ids ``file::name``."""
    passed = []
    for path in files:
        for event in _run_file(path, select, report):
            report(event)
            passed.append(event["outcome"] == "passed")
    report({"running": None})
    if not passed:
        return 5
    return 0 if all(passed) else 1


def _run_file(path: str, select: list[str], report: Report) -> Iterator[Event]:
    """Yield the event of each test of a file, or one if it cannot be imported."""
    report({"running": path})
    try:
        module = _load(path, os.path.basename(path).removesuffix(".py"))
    except BaseException as error:  # noqa: BLE001 - the file's own, to be shown
        message = _describe(error)
        yield {"test": path, "outcome": "error", "message": message, "seconds": 0.0}
        return
    report({"running": ""})
    for test, function in list(vars(module).items()):
        identity = f"{path}::{test}"
        if not test.startswith("test_") or not isinstance(function, types.FunctionType):
            continue
        if select and identity not in select:
            continue
        report({"running": identity})
        yield _run_test(identity, function)


def _run_test(identity: str, function: types.FunctionType) -> Event:
    outcome, message = "passed", ""
    started = time.perf_counter()
    try:
        result: object = function()
        if isinstance(result, types.CoroutineType | types.GeneratorType):
            raise TypeError("a test must be a plain function, not async or a generator")
    except BaseException as error:  # noqa: BLE001 - the test's own, to be shown
        outcome = "failed" if isinstance(error, AssertionError) else "error"
        message = _describe(error)
    return {
        "test": identity,
        "outcome": outcome,
        "message": message,
        "seconds": round(time.perf_counter() - started, 6),
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


def _load(path: str, name: str) -> types.ModuleType:
    """Import a test file whose failing bare asserts say what the two sides were."""
    with open(path, "rb") as source:
        tree = ast.parse(source.read(), path)
    code = compile(_Explainer().visit(tree), path, "exec", dont_inherit=True)
    module = types.ModuleType(name)
    module.__dict__.update({"__file__": path, _EXPLAIN: _explain})
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module


class _Explainer(ast.NodeTransformer):
    """Rewrites ``assert a == b`` to keep both values for the message."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """Rewrite one assert statement; its semantics stay the same."""
        test = node.test
        arguments: list[ast.expr] = [
            ast.Constant(ast.unparse(test)),
            node.msg or ast.Constant(None),
        ]
        statements: list[ast.stmt] = []
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            for name, value in ((_LEFT, test.left), (_RIGHT, test.comparators[0])):
                statements.append(ast.Assign([ast.Name(name, ast.Store())], value))
                arguments.append(ast.Name(name, ast.Load()))
            left, right = arguments[-2:]
            test = ast.Compare(left, test.ops, [right])
        message = ast.Call(ast.Name(_EXPLAIN, ast.Load()), arguments, [])
        statements.append(ast.Assert(test, message))
        for statement in statements:
            ast.copy_location(statement, node)
            ast.fix_missing_locations(statement)
        return statements


def _explain(source: str, message: object, *sides: object) -> str:
    text = f"assert {source}"
    if sides:
        left, right = (_SHORT.repr(side) for side in sides)
        text += f" (left: {left}, right: {right})"
    return text if message is None else f"{message}\n{text}"


_SHORT = reprlib.Repr(maxlevel=4, maxstring=200, maxother=200)
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 20
