"""Finds framework adapters by name: the built-in ones and those of entry points."""

from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

from agentgym.errors import FrameworkNotFoundError, MissingExtraError, UsageError
from agentgym.integrations.base import Adapter

ENTRY_POINT_GROUP = "agentgym.frameworks"

_BUILT_IN = {
    "langchain": "agentgym.integrations.langchain.adapter:LangChainAdapter",
    "native": "agentgym.integrations.native:NativeAdapter",
}


def framework_names() -> list[str]:
    """Return the names of all adapters, built-in ones first."""
    others = {point.name for point in entry_points(group=ENTRY_POINT_GROUP)}
    return [*_BUILT_IN, *sorted(others - set(_BUILT_IN))]


def get_adapter(name: str) -> Adapter:
    """Return the adapter named ``name``; importing it imports no framework.

    Raises:
        FrameworkNotFoundError: Names the nearest and those available.
        UsageError: The entry point does not lead to an Adapter.
    """
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        adapter = getattr(import_module(module), attribute)()
    else:
        points = entry_points(group=ENTRY_POINT_GROUP, name=name)
        if not points:
            raise FrameworkNotFoundError(name, framework_names())
        adapter = next(iter(points)).load()()
    if not isinstance(adapter, Adapter):
        raise UsageError(f"Framework {name!r} is no agentgym Adapter subclass.")
    return adapter


def require(modules: list[str], extra: str, purpose: str) -> None:
    """Check that ``modules`` can be imported, without importing them.

    Raises:
        MissingExtraError: Names the extra and the install command.
    """
    if any(find_spec(module) is None for module in modules):
        raise MissingExtraError(extra, purpose)
