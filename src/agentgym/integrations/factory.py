"""Importing the user's own agent factory, ``module:name``."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from agentgym.errors import UsageError


def load_factory(reference: str, *, option: str = "--agent") -> Callable[..., Any]:
    """Import ``make_agent`` of ``"my_package.my_module:make_agent"``.

    The working folder is importable, as it is for ``python -m``.

    Args:
        reference: ``module:name``.
        option: Where the user wrote it, for the error.

    Raises:
        UsageError: The reference is malformed, or cannot be imported or called.
    """
    module_name, separator, name = reference.partition(":")
    if not separator or not module_name or not name:
        raise UsageError(f"{option} takes module:name, not {reference!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        factory = vars(import_module(module_name))[name]
    except ImportError as error:
        raise UsageError(f"Cannot import {module_name!r}: {error}.") from error
    except KeyError:
        raise UsageError(f"Module {module_name!r} has no {name!r}.") from None
    if not callable(factory):
        raise UsageError(f"{reference} is a {type(factory).__name__}, not callable.")
    function: Callable[..., Any] = factory
    return function
