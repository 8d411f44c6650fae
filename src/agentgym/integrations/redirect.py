"""Model calls of an agent as it is, led to another model as soon as a library is there.

Whatever an agent's code does to come by a model, in a module, in a closure or in the
middle of a node, its calls go through a class of LangChain's, or through the client of
OpenAI's package. Each is taught once, as it is imported, to look for another model in
the running context; where none is set, nothing is different.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pkgutil import resolve_name
from types import ModuleType

_TAUGHT = {
    "langchain_core.language_models.chat_models": (
        "agentgym.integrations.langchain.redirect:teach_models"
    ),
    "langchain_core.tools.base": "agentgym.integrations.langchain.redirect:teach_tools",
    "openai._base_client": "agentgym.integrations.openai_client:teach",
}


def watch() -> None:
    """Teach the libraries that are imported, and those that will be."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name, lesson in _TAUGHT.items():
        if (module := sys.modules.get(name)) is not None:
            resolve_name(lesson)(module)


class _Finder(MetaPathFinder):
    """Finds the modules that are to be taught, as they would be found without it."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname not in _TAUGHT:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Teaching(spec.loader)
        return spec


class _Teaching(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        resolve_name(_TAUGHT[module.__name__])(module)
