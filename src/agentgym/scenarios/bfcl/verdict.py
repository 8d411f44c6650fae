"""Run the benchmark's own checker of function calls, unchanged.

The checker imports a module of its package that needs the client libraries of all model
providers. Only this module is replaced. The checker's modules are not put into
``sys.modules``, so they do not conflict with an installed ``bfcl_eval``.
"""

import builtins
from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from agentgym.scenarios.bfcl.entries import IRRELEVANCE, RELEVANCE, Entry
from agentgym.scenarios.bfcl.functions import language_of
from agentgym.scenarios.bfcl.package import CHECKER, NAME, Package

_MODEL = "agentgym"
_MODELS = f"{NAME}.constants.model_config"
_CHECKER = "eval_checker.ast_eval.ast_checker"


class MadeCall(NamedTuple):
    """A call that a model made; ``arguments`` is None if its JSON cannot be parsed."""

    name: str
    arguments: Mapping[str, Any] | None


class Checker:
    """Judges a model's answer to a test case with the benchmark's checker.

    An answer is a list of calls.

    Args:
        package: The benchmark's package, which has the checker.
    """

    def __init__(self, package: Package) -> None:
        modules = _Modules(package)
        self._checker: Any = modules.load(f"{NAME}.{_CHECKER}")
        self._language: Any = modules.load(f"{NAME}.constants.enums").Language

    def accepts(self, entry: Entry, calls: Sequence[MadeCall]) -> bool:
        """Return whether the benchmark accepts an answer to an entry (test case).

        If the arguments of a call cannot be parsed, the whole answer counts as an
        answer without calls, as in the benchmark's own runs. If the checker raises an
        exception, e.g. because of unusual arguments, the answer is wrong.
        """
        unreadable = any(call.arguments is None for call in calls)
        if entry.category in IRRELEVANCE:
            return unreadable or not calls
        if entry.category == RELEVANCE:
            return bool(calls) and not unreadable
        if unreadable:
            return False
        made = [{call.name: dict(call.arguments or {})} for call in calls]
        try:
            found = self._checker.ast_checker(
                list(entry.functions),
                made,
                list(entry.answers),
                self._of(entry),
                entry.category,
                _MODEL,
            )
        except Exception:  # noqa: BLE001 - the benchmark's own code
            return False
        return bool(found["valid"])

    def is_right(self, entry: Entry, answer: int, call: MadeCall) -> bool:
        """Return whether a call matches the right call ``entry.answers[answer]``.

        ``answer`` is the number of the right call, from 0.
        """
        wanted = entry.answers[answer]
        [name] = wanted
        function = self._checker.find_description(list(entry.functions), name)
        made = {call.name: dict(call.arguments or {})}
        try:
            found = self._checker.simple_function_checker(
                function, made, wanted, self._of(entry), _MODEL
            )
        except Exception:  # noqa: BLE001 - the benchmark's own code
            return False
        return bool(found["valid"]) and call.arguments is not None

    def _of(self, entry: Entry) -> Any:
        return self._language(language_of(entry.category))


class _Modules:
    """Loads modules of the benchmark's package, but not into ``sys.modules``."""

    def __init__(self, package: Package) -> None:
        self._package = package
        models = ModuleType(_MODELS)
        named = SimpleNamespace(underscore_to_dot=True)  # tool names have no dots
        vars(models)["MODEL_CONFIG_MAPPING"] = MappingProxyType({_MODEL: named})
        self._loaded = {_MODELS: models}

    def load(self, name: str) -> ModuleType:
        """Return a module of the checker, which is loaded at the first call.

        Raises:
            ImportError: The name is not a module of the checker.
        """
        if name not in self._loaded:
            file = f"{name.removeprefix(f'{NAME}.').replace('.', '/')}.py"
            if file not in CHECKER:
                raise ImportError(f"{name} is not a part of the checker")
            made = self._loaded[name] = ModuleType(name)
            mine = {**vars(builtins), "__import__": self._import}
            vars(made)["__builtins__"] = mine
            code = compile(self._package.text(file), f"{NAME}/{file}", "exec")
            exec(code, vars(made))
        return self._loaded[name]

    def _import(self, name: str, *how: Any, **more: Any) -> Any:
        if name.partition(".")[0] == NAME:
            return self.load(name)
        return builtins.__import__(name, *how, **more)
