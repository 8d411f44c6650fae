"""gives: evaluate expressions in the sandbox, and check the values outside it.

A program can deceive tests that run in its own process, e.g. write the test report, or
return an object that equals everything. With :func:`gives`, only values leave the
sandbox, as texts, and the expected values never enter it.
"""

import ast
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.errors import SandboxError
from agentgym.sandbox.commands import Command, PythonScript, SandboxResult
from agentgym.sandbox.guest import plain
from agentgym.sandbox.language import free_name
from agentgym.sandbox.languages import PYTHON, language_named, language_of
from agentgym.sandbox.sandbox import DEFAULT_TIMEOUT_S, Sandbox


def json_text(value: object) -> str:
    """Return the canonical text of a JSON value: 1.0 is written as 1."""
    _check_keys(value)
    written = json.dumps(value, allow_nan=False)
    plain_value = json.loads(written, parse_float=_number)
    return json.dumps(plain_value, allow_nan=False, sort_keys=True)


def _check_keys(value: object) -> None:
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise TypeError("it has keys that are not texts")
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            _check_keys(part)


def _number(written: str) -> float:
    value = float(written)
    return int(value) if value.is_integer() else value


def json_text_of(written: str) -> str | None:
    """Return the canonical text of a JSON text; None if the JSON is invalid."""
    try:
        return json_text(json.loads(written))
    except (ValueError, TypeError, RecursionError):
        return None


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
    """Result of :func:`gives`; true if all expressions had the expected value.

    Attributes:
        asked: Number of expressions.
        wrong: For each expression without the expected value, the start of its value,
            or the reason why it has none. The keys are ``module.py: expression``. The
            tested program may have chosen this text, so only show it to people.
    """

    asked: int
    wrong: Mapping[str, str]

    def __bool__(self) -> bool:
        return not self.wrong

    @property
    def share(self) -> float:
        """Fraction of the expressions that had the expected value, 0 to 1."""
        return 1 - len(self.wrong) / self.asked


def gives(
    sandbox: Sandbox,
    files: Mapping[str, str],
    expected: Mapping[str, Mapping[str, Any]],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Verdict:
    """Evaluate expressions in a sandbox, and compare their values outside of it.

    Each expression is evaluated in the namespace of its module. Its value, and each
    item in it, must equal the expected value and have the same type. 1, 1.0 and True
    differ, and nan equals nan. Values may only contain None, bool, int, float, str,
    bytes, list, tuple, set, frozenset and dict.

    Write expressions that return values, not comparisons: ``add(1, 2)`` instead of
    ``add(1, 2) == 3``. Use ``round(f(2), 6)`` for a float, and ``list(f(2))`` for an
    object of another type.

    The extension of a module's path decides the language. Values of languages other
    than Python leave the sandbox as JSON, so 1 equals 1.0, a list equals a tuple, and
    the keys of objects are strings. In compiled languages, all expressions are compiled
    together. If one of them does not compile, all count as wrong.

    An expression that raises an error counts as wrong. If the program hangs, crashes or
    exits, all expressions count as wrong.

    Args:
        sandbox: The sandbox to run in. The call blocks until it has the values.
        files: The texts of the workspace's files, by relative path.
        expected: Expected values by module path and expression, such as
            ``{"cart.py": {"add(1, 2)": 3}}``. Python modules in the folder ``src/`` are
            imported without ``src`` in their names.
        timeout_s: Time limit, as in :meth:`Sandbox.run`, for all expressions of one
            language together.

    Raises:
        SandboxError: An expression, a path or an expected value cannot be used, or the
            sandbox failed.
    """
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
    by_language: dict[str, list[tuple[str, str]]] = {}
    for path, expression in right:
        by_language.setdefault(language_of(path), []).append((path, expression))
    wrong = {}
    for language, pairs in by_language.items():
        job, command = _job(language, files, pairs)
        result = sandbox.run_sync(job, command, timeout_s=timeout_s).checked()
        lines = result.stdout.split("\n") if result.ok else []
        values = {number: text for number, _, text in (x.partition(" ") for x in lines)}
        for number, (path, expression) in enumerate(pairs):
            text = values.get(str(number))
            if text is None:
                wrong[f"{path}: {expression}"] = _ending(result)
            elif _comparable(text, language) != right[path, expression]:
                wrong[f"{path}: {expression}"] = text[:_SHOWN]
    return Verdict(asked=len(right), wrong=wrong)


def _job(
    language: str, files: Mapping[str, str], pairs: Sequence[tuple[str, str]]
) -> tuple[dict[str, str], Command]:
    """Return the files and the command that evaluate (path, expression) pairs."""
    if language != PYTHON:
        asked = [(number, *pair) for number, pair in enumerate(pairs)]
        return language_named(language).values(files, asked)
    lines = list(enumerate((_module(path), text) for path, text in pairs))
    script = f"{inspect.getsource(plain)}{_SCRIPT}\n\n_write_all({lines!r})\n"
    name = free_name(files, "_asked.py")
    return {**files, name: script}, PythonScript(name)


def _comparable(text: str, language: str) -> str | None:
    """Convert a program's text to a comparable one; None if it is invalid JSON."""
    if language == PYTHON:
        return text[: plain.MOST_CHARACTERS]
    return json_text_of(text)


def _ending(result: SandboxResult) -> str:
    """Describe why an execution returned no value."""
    if result.status == "exited":
        last = result.stderr.strip().rpartition("\n")[2][:_SHOWN]
        return f"no value: it exited with code {result.exit_code}: {last}"
    return f"no value: {result.status.replace('_', ' ')} {result.error}".strip()


def _right(path: str, expression: str, value: object) -> str:
    """Check an expression of a module; return its expected value as comparable text."""
    is_python = language_of(path) == PYTHON
    try:
        if is_python:
            ast.parse(expression.strip(), mode="eval")
        elif not expression.strip():
            raise SyntaxError("it is empty")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SandboxError(f"{expression!r} is not an expression: {error}.") from None
    try:
        return plain.plain_text(value) if is_python else json_text(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise SandboxError(
            f"What {expression!r} should give cannot be compared: {error}. Expect "
            "plain values, and let the expression convert to them."
        ) from None


def _module(path: str) -> str:
    """Return the dotted name under which the module in a file is imported."""
    plain_path = path.removeprefix("src/").removesuffix(".py")
    return plain_path.removesuffix("/__init__").replace("/", ".")
