"""Redirect model calls of an unchanged agent, by patching libraries at import.

Wherever an agent's code creates a model, the model's calls go through a class of a
known library. Each such class is patched once, when the library is imported. A patched
class uses the model set in the current context; without one, it works as before.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pkgutil import resolve_name
from traceback import walk_stack
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from agentgym.errors import UnsupportedError, UsageError
from agentgym.integrations.base import Blueprint
from agentgym.integrations.witness import replaces
from agentgym.plugins import REGISTERED

if TYPE_CHECKING:
    import httpx

_PATCHES = {
    "langchain_core.language_models.chat_models": (
        "agentgym.integrations.langchain.redirect:patch_models"
    ),
    "langchain.agents.middleware.types": (
        "agentgym.integrations.langchain.redirect:patch_middleware"
    ),
    "langchain_core.tools.base": "agentgym.integrations.langchain.redirect:patch_tools",
    "openai._base_client": "agentgym.integrations.redirect:patch_openai",
    **REGISTERED["agentgym.patches"],
}


@contextmanager
def holding[T](variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable within the block, and restore it afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


GUARD = "Put the code that runs the agent under `if __name__ == '__main__':`."
_REFUSING: ContextVar[BaseException | None] = ContextVar("refusing", default=None)
_GATEWAY: ContextVar[Blueprint | None] = ContextVar("agentgym_gateway", default=None)
_CHAT = "/chat/completions"
_OTHER_APIS = ("/responses", "/completions")
_BUILDING = threading.Lock()
_MODELS: ContextVar[Callable[[str], Any]] = ContextVar("models", default=lambda _: None)


class AgentRanError(UsageError):
    """A module calls a model as it is imported, at ``line``."""

    module: ModuleType | None = None
    line = 0

    def __init__(self, name: str) -> None:
        says = f"{name} runs the agent as it is imported, and every worker imports it."
        super().__init__(f"{says} {GUARD}")
        self.thread = threading.get_ident()


def refusing_calls(error: BaseException) -> AbstractContextManager[None]:
    """Raise ``error`` at model calls within the block."""
    return holding(_REFUSING, error)


def refuse_calls() -> None:
    """Raise the error of :func:`refusing_calls`, if there is one."""
    if (error := _REFUSING.get()) is None:
        return
    if isinstance(error, AgentRanError):
        importing = walk_stack(sys._current_frames().get(error.thread))
        running = (x for x, _ in importing if x.f_code.co_name == "<module>")
        if (frame := next(running, None)) is not None:
            error.module = sys.modules.get(str(frame.f_globals["__name__"]))
            error.line = frame.f_lineno
    raise error


def answering(models: Callable[[str], Any]) -> AbstractContextManager[None]:
    """Replace the models of an agent's code within the block."""
    outer = _MODELS.get()

    def either(framework: str) -> Any:
        found = models(framework)
        return outer(framework) if found is None else found

    return holding(_MODELS, either)


def model_for(framework: str, *, is_call: bool = True, instead: Any = None) -> Any:
    """Return the model that replaces all models of a framework; None to keep them.

    ``instead`` is the model that it replaces, for the record of a trial.
    """
    if is_call:
        refuse_calls()
    found = _MODELS.get()(framework)
    if found is not None and instead is not found:
        replaces(instead)
    return found


def patch_methods(
    base: Any,
    names: Sequence[str],
    patch: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Patch methods of a class and of all its subclasses, also of later ones.

    ``patch`` converts each method that a class defines.
    """

    def apply(kind: Any) -> None:
        for name in names:
            if name in vars(kind):
                setattr(kind, name, patch(vars(kind)[name]))

    def subclass_of(kind: Any, /, **named: Any) -> None:
        if own is None:
            super(base, kind).__init_subclass__(**named)
        else:
            own.__get__(None, kind)(**named)
        apply(kind)

    waiting = [base]
    while waiting:
        kind = waiting.pop()
        apply(kind)
        waiting += kind.__subclasses__()
    own = vars(base).get("__init_subclass__")
    base.__init_subclass__ = classmethod(subclass_of)


def replace_calls(base: Any, names: Sequence[str], framework: str) -> None:
    """Patch the model calls of all models of a framework to use :func:`model_for`.

    ``names`` are the methods of ``base`` that call the model.
    """

    def patch(ask: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(ask)
        def routed(self: Any, *args: Any, **named: Any) -> Any:
            other = model_for(framework, instead=self)
            if other is None or isinstance(self, type(other)):
                return ask(self, *args, **named)
            return getattr(other, ask.__name__)(*args, **named)

        return routed

    patch_methods(base, names, patch)


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


def clients_redirected_to(blueprint: Blueprint) -> AbstractContextManager[None]:
    """Send the chat completions of all OpenAI clients in the block to the gateway."""
    return holding(_GATEWAY, blueprint)


def patch_openai(module: ModuleType) -> None:
    """Patch OpenAI's clients, so that :func:`clients_redirected_to` works."""
    build = module.BaseClient._build_request

    def _build_request(
        self: Any, options: Any, *, retries_taken: int = 0
    ) -> "httpx.Request":
        refuse_calls()
        build_models()
        request = build(self, options, retries_taken=retries_taken)
        if (blueprint := _GATEWAY.get()) is not None:
            _redirect(request, blueprint, is_first=retries_taken == 0)
            _reach_without_proxy(self._client, request.url)
        built: httpx.Request = request
        return built

    module.BaseClient._build_request = _build_request


def build_models() -> None:
    """Build the pydantic models of OpenAI's chat completions, once.

    The package builds each model at the first answer of its type. If two threads get
    their first answers at the same time, one thread would use a half-built model and
    fail with "BaseModel cannot be instantiated directly".
    """
    with _BUILDING:
        _build_models_once()


@functools.cache
def _build_models_once() -> None:
    from openai import BaseModel
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    seen: set[Any] = set()
    left: list[Any] = [ChatCompletion, ChatCompletionChunk]
    while left:
        kind = left.pop()
        if kind in seen:
            continue
        seen.add(kind)
        left += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind.model_rebuild()
            left += (field.annotation for field in kind.model_fields.values())
            left += kind.__bases__


def _reach_without_proxy(client: Any, url: "httpx.URL") -> None:
    """Let an httpx client ask the gateway's URL directly, not through a proxy."""
    from httpx._utils import URLPattern

    if client._transport_for_url(url) is not client._transport:
        pattern = URLPattern(f"all://{url.netloc.decode()}")
        client._mounts = {pattern: None, **client._mounts}


def _redirect(
    request: "httpx.Request", blueprint: Blueprint, *, is_first: bool
) -> None:
    if str(request.url).startswith(blueprint.gateway):
        return  # AgentGym's own clients count their calls themselves
    path = request.url.path
    if path.endswith(_CHAT):
        from agentgym.integrations.episode import current_episode

        episode = current_episode()
        if is_first:
            episode.begin_turn()
            episode.answered += 1  # counted now: the answer is not visible
        request.url = type(request.url)(f"{blueprint.gateway}{episode.path}{_CHAT}")
        request.headers["Host"] = request.url.netloc.decode()
        request.headers["Authorization"] = f"Bearer {blueprint.api_key}"
    elif path.endswith(_OTHER_APIS):
        raise UnsupportedError(
            f"The agent asks its model through {path}, and training has chat "
            "completions: use chat.completions.create, or use_responses_api=False."
        )
