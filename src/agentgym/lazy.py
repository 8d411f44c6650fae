"""Packages whose names are imported when they are first used."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any


def lazily(
    package: ModuleSpec,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Its names are those that it imports below ``if TYPE_CHECKING:``, as type checkers
    read them; this reads the same lines::

        if TYPE_CHECKING:
            from agentgym.core.task import Task as Task
        else:
            __getattr__, __dir__, __all__ = lazily(__spec__)
    """
    source: str = package.loader.get_source(package.name)  # type: ignore[union-attr]
    homes = {
        alias.name: statement.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package.name!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package.name]), *homes})

    return find, names, sorted(homes)
