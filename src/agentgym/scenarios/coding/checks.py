"""Lint and format: libraries that only parse, in process, remembered by content."""

import ast
from functools import lru_cache

from agentgym.errors import ToolError

_REMEMBERED = 4096


@lru_cache(_REMEMBERED)
def problems(source: str) -> tuple[tuple[int, str], ...]:
    """Return what pyflakes and pycodestyle find: (line, message), sorted."""
    import pycodestyle  # type: ignore[import-untyped]
    from pyflakes.checker import Checker  # type: ignore[import-untyped]

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        return ((line or 1, "syntax error"),)
    except (RecursionError, MemoryError):
        return ((1, "too deeply nested"),)
    found = [(m.lineno, m.message % m.message_args) for m in Checker(tree).messages]
    guide = pycodestyle.StyleGuide(
        parse_argv=False, config_file=False, reporter=_collector(found)
    )
    lines = source.splitlines(keepends=True)
    pycodestyle.Checker("", lines, guide.options).check_all()
    return tuple(sorted(found))


def _collector(found: list[tuple[int, str]]) -> type:
    """Return a pycodestyle reporter that appends to ``found``."""
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
    """Return the source as autopep8 lays it out.

    Raises:
        ToolError: The source does not parse.
    """
    import autopep8  # type: ignore[import-untyped]

    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError("the file does not parse; repair it first.") from error
    result: str = autopep8.fix_code(source)
    return result


@lru_cache(_REMEMBERED)
def meaning(source: str) -> str | None:
    """Return what the source says apart from its layout, None if it does not parse."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
