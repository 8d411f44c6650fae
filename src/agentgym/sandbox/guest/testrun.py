"""Run tests: ``test_*`` functions and methods with plain ``assert`` statements.

Test files are imported and named as in pytest. If pytest can run a test too, its
outcome is the same. Tests that use fixtures, marks or ``unittest`` are reported as
errors.

The runner reports each test before and after it runs. So if an execution is killed, the
host knows the test that was running. Exit codes are those of pytest: 0 all passed, 1
some failed, 5 no tests found.
"""

import ast
import functools
import importlib
import os
import reprlib
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

Event = dict[str, Any]
Report = Callable[[Event], None]
_MESSAGE_CHARACTERS = 2000
_LEFT, _RIGHT, _EXPLAIN = "@left", "@right", "@explain"


def run(files: list[str], select: list[str], report: Report) -> int:
    """Run the tests ``select`` (``file::name``; all if empty); return the exit code.

    ``report`` is called with a dict before and after each test.
    """
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
    """Yield the result of each test of a file, or the error of its import."""
    report({"running": path})
    try:
        module = _load(path)
    except BaseException as error:  # noqa: BLE001 - the file's own, to be shown
        message = _describe(error)
        yield {"test": path, "outcome": "error", "message": message, "seconds": 0.0}
        return
    report({"running": ""})
    for test, call in _tests(module):
        identity = f"{path}::{test}"
        if select and identity not in select:
            continue
        report({"running": identity})
        yield _run_test(identity, call)


def _tests(module: types.ModuleType) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name of each test in a module, with a function that runs the test."""
    for name, found in list(vars(module).items()):
        if name.startswith("test") and isinstance(found, types.FunctionType):
            yield name, found
        elif isinstance(found, type) and _is_unittest(found):
            yield name, _refuse_unittest
        elif isinstance(found, type) and name.startswith("Test"):
            for method in _methods(found):
                yield f"{name}::{method}", functools.partial(_call, found, method)


def _is_unittest(found: type) -> bool:
    return any(
        (base.__module__, base.__name__) == ("unittest.case", "TestCase")
        for base in found.__mro__[1:]
    )


def _refuse_unittest() -> None:
    raise TypeError(
        "unittest's classes need pytest: python -m pytest, with pytest in python_path"
    )


def _methods(owner: type) -> list[str]:
    """Return the names of a class's test methods, inherited ones first."""
    names = {name: None for base in reversed(owner.__mro__) for name in vars(base)}
    return [name for name in names if name.startswith("test")]


def _call(owner: type, method: str) -> object:
    """Call a test method on a new instance, with its setup and teardown methods."""
    instance = owner()
    getattr(instance, "setup_method", lambda: None)()
    try:
        return getattr(instance, method)()
    finally:
        getattr(instance, "teardown_method", lambda: None)()


def _run_test(identity: str, call: Callable[[], object]) -> Event:
    outcome, message = "passed", ""
    started = time.perf_counter()
    try:
        result = call()
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
    """Describe an exception as ``file:line: Type: message``, in a workspace file."""
    workspace = os.getcwd() + os.sep
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        filename = os.path.join(workspace, frame.f_code.co_filename)
        if filename.startswith(workspace) and "<" not in filename:
            place = f"{filename.removeprefix(workspace)}:{line}: "
    text = traceback.format_exception_only(error)[-1].strip()
    return f"{place}{text}"[:_MESSAGE_CHARACTERS]


def _load(path: str) -> types.ModuleType:
    """Import a test file, as a submodule if its folder is a package."""
    folder, _, base = path.rpartition("/")
    name = base.removesuffix(".py")
    while folder and os.path.exists(f"{folder}/__init__.py"):
        folder, _, package = folder.rpartition("/")
        name = f"{package}.{name}"
    root = os.path.abspath(folder)
    if root not in sys.path:
        sys.path.insert(0, root)
    if parent := name.rpartition(".")[0]:
        importlib.import_module(parent)
    loader = _Loader(name, path)
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = sys.modules[name] = module_from_spec(spec)
    vars(module)[_EXPLAIN] = _explain
    loader.exec_module(module)
    return module


class _Loader(SourceFileLoader):
    """Loads a test file so that a failed ``assert a == b`` shows both values."""

    def source_to_code(  # type: ignore[override]
        self, data: bytes, path: str, *, _optimize: int = -1
    ) -> types.CodeType:
        tree = ast.parse(data, path)
        return compile(_Explainer().visit(tree), path, "exec", dont_inherit=True)


class _Explainer(ast.NodeTransformer):
    """Rewrites ``assert a == b`` so that a failure shows both values."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """Return statements that replace an ``assert``, and show values on failure."""
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
        if len(statements) > 1:
            names = [ast.Name(name, ast.Store()) for name in (_LEFT, _RIGHT)]
            forget = ast.Assign([*names], ast.Constant(None))
            statements = [ast.Try(statements, [], [], [forget])]
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
