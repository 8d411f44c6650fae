"""Judge a program by its values: they leave the sandbox, and the host compares them.

Tests that run in the same process as the code under test can be deceived by it: it may
write their report, patch their runner, or return an object that equals everything. With
:func:`gives`, only texts of values leave the sandbox, made by ``guest.plain``; the
expected values never enter it. Such code can choose the values, and only these are
judged.
"""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentgym.errors import SandboxError
from agentgym.sandbox.commands import PythonScript
from agentgym.sandbox.guest import plain
from agentgym.sandbox.on_demand import LazySandbox
from agentgym.sandbox.result import SandboxResult
from agentgym.sandbox.sandbox import DEFAULT_TIMEOUT_S, Sandbox

_LINE_BYTES = plain.MOST_CHARACTERS + 8
_SHOWN = 150
_SCRIPT = """
import importlib as _importlib, os as _os, sys as _sys


def _evaluated(module, expression):
    try:
        names = dict(vars(_importlib.import_module(module)))
        return plain_text(eval(expression, names))
    except BaseException as error:
        try:
            return f"raised {type(error).__name__}: " + ascii(str(error)[:60])[1:-1]
        except BaseException:
            return "raised"


def _write_all(asked):
    out = _os.dup(1)
    _os.dup2(2, 1)  # The program's own prints are not values.
    if _os.path.isdir("src"):
        _sys.path.insert(0, _os.path.abspath("src"))
    text = "".join(f"{number} {_evaluated(*pair)}\\n" for number, pair in asked)
    _os.write(out, text.encode())
"""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The expressions that gave the expected values; true if all did.

    Attributes:
        asked: How many expressions there were.
        wrong: Those that did not, as ``module.py: expression``, and the values that
            they gave, as a short text. The program chose that: show it to people, and
            let nothing depend on it.
    """

    asked: int
    wrong: Mapping[str, str]

    def __bool__(self) -> bool:
        return not self.wrong

    @property
    def share(self) -> float:
        """The share of the expressions with the expected value, 0..1."""
        return 1 - len(self.wrong) / self.asked


def gives(
    sandbox: Sandbox | LazySandbox,
    files: Mapping[str, str],
    expected: Mapping[str, Mapping[str, Any]],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Verdict:
    """Judge code by the values that it gives, in a way that it cannot forge.

    Each expression is evaluated in the names of its module, in one execution. Values
    are right if they equal the expected value and have the same types, inside too: 1,
    1.0 and True are three values, nan is nan, and nothing but None, bool, int, float,
    str, bytes, list, tuple, set, frozenset and dict is any value at all. So let
    expressions give values and no verdicts: ``add(1, 2)``, never ``add(1, 2) == 3``;
    ``round(f(2), 6)`` for a float, ``list(f(2))`` for an object of another type.

    A value that an expression raises instead is wrong. A program that hangs, crashes
    or exits gives nothing: then all are wrong.

    Args:
        sandbox: Where to run the code. This call waits for it.
        files: The workspace: relative path to text.
        expected: For each module, by its path, expressions and their right values.
            The folder ``src/`` is importable.
        timeout_s: Seconds that all expressions together may take, as in
            :meth:`Sandbox.run`.

    Raises:
        SandboxError: An expression, a path or an expected value cannot be used, or the
            sandbox failed.
    """
    if isinstance(sandbox, LazySandbox):
        sandbox = sandbox.get()
    right = {
        (path, expression): _right(path, expression, value)
        for path, values in expected.items()
        for expression, value in values.items()
    }
    most = sandbox.config.limits.output_bytes // _LINE_BYTES
    if not 1 <= len(right) <= most:
        raise SandboxError(
            f"One call judges 1 to {most} expressions, not {len(right)}; more with a "
            "larger Limits.output_bytes."
        )
    asked = list(enumerate((_module(path), text) for path, text in right))
    script = f"{inspect.getsource(plain)}{_SCRIPT}\n\n_write_all({asked!r})\n"
    name = _free_name(files)
    result = sandbox.run_sync(
        {**files, name: script}, PythonScript(name), timeout_s=timeout_s
    )
    if result.status == "sandbox_error":
        raise SandboxError(f"The sandbox failed: {result.error}")
    values = _values(result)
    wrong = {}
    for number, ((path, expression), text) in enumerate(right.items()):
        given = values.get(str(number))
        if given != text:
            wrong[f"{path}: {expression}"] = given or _ending(result)
    return Verdict(asked=len(right), wrong=wrong)


def _values(result: SandboxResult) -> dict[str, str]:
    """Return the value of each expression, by number; empty after a bad end."""
    lines = result.stdout.split("\n") if result.ok else []
    pairs = (line.partition(" ") for line in lines)
    return {number: text[: plain.MOST_CHARACTERS] for number, _, text in pairs}


def _ending(result: SandboxResult) -> str:
    """Return why there is no value."""
    if result.status == "exited":
        last = result.stderr.strip().rpartition("\n")[2][:_SHOWN]
        return f"no value: it exited with code {result.exit_code}: {last}"
    return f"no value: {result.status.replace('_', ' ')} {result.error}".strip()


def _right(path: str, expression: str, value: object) -> str:
    """Return the text of an expected value, once all three are found to be usable."""
    try:
        ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SandboxError(f"{expression!r} is not an expression: {error}.") from None
    if not path.endswith(".py"):
        raise SandboxError(
            f"{path!r} is not the path of a module, as in 'shop/cart.py'."
        )
    try:
        return plain.plain_text(value)
    except TypeError as error:
        raise SandboxError(
            f"What {expression!r} should give cannot be compared: {error}. Expect "
            "plain values, and let the expression convert to them."
        ) from None


def _module(path: str) -> str:
    """Return the dotted name that a module is imported by."""
    plain_path = path.removeprefix("src/").removesuffix(".py")
    return plain_path.removesuffix("/__init__").replace("/", ".")


def _free_name(files: Mapping[str, str]) -> str:
    """Return the path of a script that no file of the workspace is in the way of."""
    name = "_asked.py"
    while any(path == name or path.startswith(f"{name}/") for path in files):
        name = f"_{name}"
    return name
