"""Lint and format Python source without running it; cache the results."""

import ast
import inspect
import io
import tokenize
from functools import lru_cache

from agentgym.errors import ToolError

_REMEMBERED = 4096
_MOST_CHARACTERS = 1_500
_MOST_TOKENS = 80
_MOST_PASSES = 6


@lru_cache(_REMEMBERED)
def problems(source: str) -> tuple[tuple[int, str], ...]:
    """Return the problems that pyflakes and pycodestyle find, as (line, message)."""
    try:
        return tuple(sorted(_found(source)))
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        return ((line or 1, "syntax error"),)
    except (RecursionError, MemoryError):
        return ((1, "too deeply nested"),)


def _found(source: str) -> list[tuple[int, str]]:
    import pycodestyle  # type: ignore[import-untyped]
    from pyflakes.checker import Checker  # type: ignore[import-untyped]

    tree = ast.parse(source)
    found = [(m.lineno, m.message % m.message_args) for m in Checker(tree).messages]
    guide = pycodestyle.StyleGuide(
        parse_argv=False, config_file=False, reporter=_collector(found)
    )
    # autopep8 replaces this check globally, for every linter in the process.
    own = pycodestyle.continued_indentation
    wanted = list(inspect.signature(own).parameters)
    guide.options.logical_checks = [
        (name, own, wanted) if name == own.__name__ else (name, check, arguments)
        for name, check, arguments in guide.options.logical_checks
    ]
    lines = source.splitlines(keepends=True)
    pycodestyle.Checker("", lines, guide.options).check_all()
    return found


def _collector(found: list[tuple[int, str]]) -> type:
    """Return a pycodestyle reporter class that adds each problem to ``found``."""
    import pycodestyle

    class Collector(pycodestyle.BaseReport):  # type: ignore[misc]
        def error(
            self, line_number: int, offset: int, text: str, check: object
        ) -> str | None:
            code: str | None = super().error(line_number, offset, text, check)
            if code:
                found.append((line_number, text))
            return code

    return Collector


@lru_cache(_REMEMBERED)
def formatted(source: str) -> str:
    """Return the source formatted by autopep8."""
    import autopep8  # type: ignore[import-untyped]

    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError("the file does not parse; repair it first.") from error
    if len(source) > _MOST_CHARACTERS or _longest_line(source) > _MOST_TOKENS:
        raise ToolError("the file is too long to format, or a line in it is.")
    try:
        result: str = autopep8.fix_code(source, {"pep8_passes": _MOST_PASSES})
    except RecursionError as error:
        raise ToolError("the file is too deeply nested to format.") from error
    return result


def _longest_line(source: str) -> int:
    """Return the number of tokens in the longest statement."""
    most = tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        tokens += 1
        if token.type == tokenize.NEWLINE:
            most, tokens = max(most, tokens), 0
    return max(most, tokens)


@lru_cache(_REMEMBERED)
def meaning(source: str) -> str | None:
    """Return the syntax tree as text, without layout; None if it is broken."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
