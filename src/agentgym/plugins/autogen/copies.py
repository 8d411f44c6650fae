"""Copies: copy an agent or team, with separate state and another model client.

An agent keeps state, and a team has its own runtime, so two episodes cannot share one
object. The objects are serialized once and restored for each episode. Objects that
cannot be serialized, and most objects from libraries, are shared by all copies.
"""

import asyncio
import io
import pickle
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_core import SingleThreadedAgentRuntime
from autogen_core.memory import ListMemory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, StaticWorkbench, Workbench

from agentgym.errors import UnsupportedError

_PLAIN = (
    *(bool, bytearray, bytes, float, int, str, type(None)),
    *(dict, frozenset, list, set, tuple),
)
_OF_STANDARD_LIBRARY = (Counter, OrderedDict, Random, defaultdict, deque)
_HOLDING_STATE = (
    BaseTool,
    ChatAgent,
    ChatCompletionContext,
    ListMemory,
    StaticWorkbench,
    Team,
    TerminationCondition,
)
_RECREATED = (asyncio.Condition, asyncio.Event, asyncio.Lock, asyncio.Queue)
_LIBRARIES = ("agentgym", "autogen_agentchat", "autogen_core", "autogen_ext")
_INSTALLED = ("site-packages", "dist-packages")


class Copies:
    """Creates copies of an agent or team; all parts use the model client ``model``.

    Attributes:
        clients: The original's model clients, which ``model`` replaces.
    """

    def __init__(self, agent: Any, model: ChatCompletionClient) -> None:
        self.clients: list[ChatCompletionClient] = []
        self._model = model
        self._kept: list[Any] = []
        self._makers: list[Callable[[], Any]] = []
        self._known: dict[int, int] = {}
        taken = io.BytesIO()
        try:
            _Taken(taken, self._instead).dump(agent)
        except Exception as error:  # any class may refuse with its own exception
            raise UnsupportedError(
                f"{agent!r} cannot be copied, and every rollout needs an agent of its "
                f"own: {type(error).__name__}: {error}."
            ) from error
        self._form = taken.getvalue()

    def make(self) -> Any:
        """Return a new copy of the agent or team."""
        return _Made(io.BytesIO(self._form), self._makers).load()

    def _instead(self, value: Any) -> int | None:
        """Return the index in ``_makers`` of the function that replaces ``value``.

        None if ``value`` is copied instead.
        """
        kind = type(value)
        if kind in _PLAIN:
            return None
        if (known := self._known.get(id(value))) is not None:
            return known
        if isinstance(value, ChatCompletionClient):
            self.clients.append(value)
            return self._put(value, lambda: self._model)
        if isinstance(value, _RECREATED):
            return self._put(value, kind)
        if isinstance(value, Workbench) and not isinstance(value, StaticWorkbench):
            return self._share(value)
        if isinstance(value, MethodType | BuiltinFunctionType):
            owner = value.__self__
            of_value = owner is not None and not isinstance(owner, ModuleType | type)
            return None if of_value else self._share(value)
        if isinstance(value, _HOLDING_STATE) or kind in _OF_STANDARD_LIBRARY:
            return None
        if isinstance(value, FunctionType | type | ModuleType) or not _is_authors(kind):
            return self._share(value)
        try:
            value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - any class may refuse in its own way
            return self._share(value)
        return None

    def _share(self, value: Any) -> int:
        return self._put(value, lambda: value)

    def _put(self, value: Any, maker: Callable[[], Any]) -> int:
        self._kept.append(value)  # otherwise its id could be reused
        self._makers.append(maker)
        self._known[id(value)] = len(self._makers) - 1
        return len(self._makers) - 1


class _Taken(pickle.Pickler):
    def __init__(self, file: io.BytesIO, instead: Callable[[Any], int | None]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.persistent_id = instead  # type: ignore[method-assign]

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, Team):
            return NotImplemented
        taken: Any = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        make, args, state, *_ = taken
        return make, args, state, None, None, _set_up_team


class _Made(pickle.Unpickler):
    """Unpickles one copy; ``makers`` create the objects that are not in the pickle."""

    def __init__(self, file: io.BytesIO, makers: list[Callable[[], Any]]) -> None:
        super().__init__(file)
        self._makers = makers
        self._made: dict[int, Any] = {}

    def persistent_load(self, number: Any) -> Any:
        if number not in self._made:
            self._made[number] = self._makers[number]()
        return self._made[number]


def _is_authors(kind: type) -> bool:
    """Return whether a class is the user's own, not from a library."""
    root = kind.__module__.partition(".")[0]
    if root in _LIBRARIES or root in sys.stdlib_module_names - {"__main__"}:
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return not any(folder in file for folder in _INSTALLED)


def _set_up_team(team: Any, state: dict[str, Any]) -> None:
    vars(team).update(state)
    team._runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
    team._embedded_runtime = True
    team._initialized = team._is_running = False
