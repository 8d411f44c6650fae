"""lazily: make a package import its names at first use."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any

_IMPORT = re.compile(r"^    from (\S+) import \(?\s*(\w+) as \2\b", re.MULTILINE)
# Importing ast would cost every command three milliseconds.


def lazily(
    package: ModuleSpec,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package.

    The package imports its names under ``if TYPE_CHECKING:``, one per statement. Type
    checkers read these lines, and this function reads them too::

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
