"""Find framework adapters by name, and import ``module:name``."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from agentgym.core.registry import Registry, load_object
from agentgym.errors import MissingExtraError, UsageError
from agentgym.integrations.base import FrameworkAdapter

FRAMEWORKS = Registry(
    FrameworkAdapter,
    "framework",
    {
        "langchain": "agentgym.integrations.langchain:LangChainAdapter",
        "native": "agentgym.integrations.native:NativeAdapter",
    },
    group="agentgym.frameworks",
)


def require(modules: list[str], extra: str, purpose: str) -> None:
    """Raise MissingExtraError if some of ``modules`` are not installed.

    The modules are not imported. ``extra`` is the pip extra that installs them. The
    error message starts with ``purpose``, e.g. ``The CrewAI adapter``.
    """
    if not all(map(is_installed, modules)):
        raise MissingExtraError(extra, purpose)


def is_installed(module: str) -> bool:
    """Return whether a module can be found; its parent packages are imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


def load_factory(reference: str, *, option: str = "--agent") -> Callable[..., Any]:
    """Import the factory ``"my_package.my_module:make_agent"``.

    The working folder is importable, as for ``python -m``. Error messages name the
    reference with its command-line option, ``option``.
    """
    factory = load_object(reference, option=option)
    if not callable(factory):
        raise UsageError(f"{reference} is a {type(factory).__name__}, not callable.")
    function: Callable[..., Any] = factory
    return function
