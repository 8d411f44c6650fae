"""Redirect model calls of an unchanged agent, by patching libraries at import.

Wherever an agent's code creates a model, the model's calls go through a class of a
known library. Each such class is patched once, when the library is imported. A patched
class uses the model set in the current context; without one, it works as before.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pkgutil import resolve_name
from types import ModuleType

_PATCHES = {
    "langchain_core.language_models.chat_models": (
        "agentgym.integrations.langchain.redirect:patch_models"
    ),
    "langchain_core.tools.base": "agentgym.integrations.langchain.redirect:patch_tools",
    "agent_framework._agents": (
        "agentgym.integrations.agent_framework.redirect:patch_agents"
    ),
    "agents.run": "agentgym.integrations.openai_agents.redirect:patch_runs",
    "crewai.utilities.converter": (
        "agentgym.integrations.crewai.json_answers:patch_converters"
    ),
    "openai._base_client": "agentgym.integrations.openai_client:patch_clients",
    "pydantic_ai.agent": "agentgym.integrations.pydantic_ai.redirect:patch_agents",
    "pydantic_ai.tool_manager": (
        "agentgym.integrations.pydantic_ai.redirect:patch_tools"
    ),
}


@contextmanager
def holding[T](variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable within the block, and restore it afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def watch() -> None:
    """Patch the libraries in ``_PATCHES``, so that their calls can be redirected.

    A library that is not imported yet is patched at its import.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name, patch in _PATCHES.items():
        if (module := sys.modules.get(name)) is not None:
            resolve_name(patch)(module)


class _Finder(MetaPathFinder):
    """Import hook: patches the modules in ``_PATCHES`` when they are imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname not in _PATCHES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader)
        return spec


class _PatchingLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        resolve_name(_PATCHES[module.__name__])(module)
