"""Packages whose names are imported when they are first used."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any

_IMPORT = re.compile(r"^    from (\S+) import \(?\s*(\w+) as \2\b", re.MULTILINE)
# The ast module would cost every command three milliseconds.


def lazily(
    package: ModuleSpec,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Its names are those that it imports below ``if TYPE_CHECKING:``, each by its own, as
    type checkers read them; this reads the same lines::

        if TYPE_CHECKING:
            from agentgym.core.task import Task as Task
        else:
            __getattr__, __dir__, __all__ = lazily(__spec__)
    """
    assert package.origin is not None
    with open(package.origin, encoding="utf-8") as file:
        homes = {name: home for home, name in _IMPORT.findall(file.read())}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package.name!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package.name]), *homes})

    return find, names, sorted(homes)
