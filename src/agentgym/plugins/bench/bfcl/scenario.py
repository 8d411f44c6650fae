"""The scenario of BFCL v4 (Berkeley Function Calling Leaderboard)."""

import builtins
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, ClassVar, Literal, NamedTuple

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolSpec, parse_arguments
from agentgym.core.trajectory import ModelCall, Reward, ToolCall, Trajectory
from agentgym.errors import NotFoundError
from agentgym.plugins.bench.bfcl.entries import (
    IRRELEVANCE,
    MULTI_TURN,
    RELEVANCE,
    ConversationEntry,
    Entry,
    chosen_categories,
    language_of,
    read_conversations,
    read_entries,
    specs_of,
    split_entries,
    tool_name,
)
from agentgym.plugins.bench.bfcl.package import (
    CHECKER,
    DISTRIBUTION,
    NAME,
    VERSION,
    Package,
    fetch,
    fetched,
)
from agentgym.plugins.bench.bfcl.programs import (
    MOST_STEPS,
    Programs,
    program_tools,
    score,
    write_programs,
)
from agentgym.sandbox import Limits, SandboxConfig
from agentgym.scenarios.base import Environment, Scenario

_MODEL = "agentgym"
_MODELS = f"{NAME}.constants.model_config"
_CHECKER = "eval_checker.ast_eval.ast_checker"


class MadeCall(NamedTuple):
    """A call that a model made; ``arguments`` is None if its JSON cannot be parsed."""

    name: str
    arguments: Mapping[str, Any] | None


class Checker:
    """Judges answers (lists of calls) with the checker of the benchmark's package."""

    def __init__(self, package: Package) -> None:
        modules = _Modules(package)
        self._checker: Any = modules.load(f"{NAME}.{_CHECKER}")
        self._language: Any = modules.load(f"{NAME}.constants.enums").Language

    def accepts(self, entry: Entry, calls: Sequence[MadeCall]) -> bool:
        """Return whether the benchmark accepts an answer to an entry (test case)."""
        # As in the benchmark's own runs, unparsable arguments make the whole answer
        # count as one without calls.
        unreadable = any(call.arguments is None for call in calls)
        if entry.category in IRRELEVANCE:
            return unreadable or not calls
        if entry.category == RELEVANCE:
            return bool(calls) and not unreadable
        if unreadable:
            return False
        made = [{call.name: dict(call.arguments or {})} for call in calls]
        given = list(entry.functions), made, list(entry.answers), self._of(entry)
        return self._is_valid("ast_checker", *given, entry.category)

    def is_right(self, entry: Entry, answer: int, call: MadeCall) -> bool:
        """Return whether a call matches the right call ``entry.answers[answer]``."""
        if call.arguments is None:
            return False
        wanted = entry.answers[answer]
        [name] = wanted
        function = self._checker.find_description(list(entry.functions), name)
        given = function, {call.name: dict(call.arguments)}, wanted, self._of(entry)
        return self._is_valid("simple_function_checker", *given)

    def _is_valid(self, function: str, *given: Any) -> bool:
        try:
            found = getattr(self._checker, function)(*given, _MODEL)
        except Exception:  # noqa: BLE001 - the benchmark's own code
            return False
        return bool(found["valid"])

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
        """Return a module of the checker, which is loaded at the first call."""
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


_MOST_OTHERS = 64
_LEFT_OUT = ""
"""An accepted value with the meaning that the argument may be omitted."""


def right_calls(entry: Entry, *, brief: bool = False) -> list[NeededCall]:
    """Return the calls that an entry (one test case) needs; [] if no function fits."""
    # The benchmark also accepts texts that differ in spaces or case, hence
    # `by_outcome`.
    return [_right_call(entry, answer, brief) for answer in entry.answers]


def _right_call(entry: Entry, answer: Mapping[str, Any], brief: bool) -> NeededCall:
    [(name, accepted)] = answer.items()
    function = next(f for f in entry.functions if f["name"] == name)
    types = function["parameters"]["properties"]
    language = language_of(entry.category)
    choices = {
        argument: values
        for argument, each in accepted.items()
        if not (brief and _LEFT_OUT in each)
        and (values := [*_values(each, types.get(argument, {}), language)])
    }
    first, *others = (
        dict(zip(choices, picked, strict=True))
        for picked in itertools.islice(
            itertools.product(*choices.values()), _MOST_OTHERS
        )
    )
    return NeededCall(tool_name(name), first, others, frozenset(accepted))


def _values(
    accepted: Sequence[Any], schema: Mapping[str, Any], language: str
) -> Iterator[Any]:
    """Yield the accepted values of an argument; of Java and JavaScript as source."""
    for value in accepted:
        if value == _LEFT_OUT:
            continue
        plain = _plain(value)
        match language:
            case "java":
                yield _java(plain, schema)
            case "javascript":
                yield _javascript(plain, str(schema.get("type")))
            case _:
                yield plain


def _plain(value: Any) -> Any:
    """Return an accepted value with the first of the accepted values for each key."""
    if isinstance(value, list):
        return [_plain(part) if isinstance(part, dict) else part for part in value]
    if not isinstance(value, dict):
        return value
    picked = {
        key: next((v for v in each if v != _LEFT_OUT), _LEFT_OUT)
        if isinstance(each, list)
        else each
        for key, each in value.items()
    }
    return {key: each for key, each in picked.items() if each != _LEFT_OUT}


def _java(value: Any, schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value}{ {'long': 'L', 'float': 'f'}.get(str(kind), '') }"
        case list():
            inner = schema.get("items", {})
            parts = [_java(part, inner) for part in value]
            if kind == "Array":
                return f"new Object[]{{{', '.join(parts)}}}"
            if inner.get("type") in ("String", "char"):
                parts = [f'"{part}"' for part in parts]
            return f"new ArrayList<>(Arrays.asList({', '.join(parts)}))"
        case dict():
            puts = (f'put("{k}", {_literal(v)});' for k, v in value.items())
            return f"new HashMap<String, Object>() {{{{ {' '.join(puts)} }}}}"
    return str(value)


def _javascript(value: Any, kind: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() if kind == "Bigint":
            return f"{value}n"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{k}: {_literal(v)}' for k, v in value.items())}}}"
    return str(value)


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_MOST_PRINTED = 4 << 20
"""Most bytes of output of a simulated program; some print long files."""
_RIGHT_TOOLS = 0.2
"""Reward of an answer with the right functions but wrong arguments."""
_UNREADABLE = 0.6
"""Reward of an answer with calls that cannot be parsed, if no call may be made."""


class BfclScenario(Scenario):
    """The benchmark BFCL v4: calls of functions, judged by the benchmark's checker.

    Args:
        data: A wheel or folder of ``bfcl-eval``; empty for the downloaded package.
        categories: Comma-separated names of categories or groups; empty for all
            single-turn categories.

    Raises:
        UsageError: The data are missing, incomplete, or of another version.
        NotFoundError: A category is unknown.
    """

    name = "bfcl"
    description = "Call the right functions: Berkeley Function Calling Leaderboard v4."
    difficulty: ClassVar[Literal["advanced"]] = "advanced"
    estimated_time = "for real models; an hour and more, by the model"
    reward_range = (0.0, 1.0)
    options = ("data", "categories")

    @classmethod
    def data_folder(cls) -> Path:
        """Return the folder of the downloaded package."""
        return fetched()

    @classmethod
    def fetch_data(cls) -> str:
        """Download the package of the benchmark."""
        fetch()
        return f"{DISTRIBUTION} {VERSION} (2 MB, Apache-2.0) from the package index"

    def __init__(self, data: str = "", categories: str = "") -> None:
        self._categories = chosen_categories(categories)
        self._package = Package.at(data)
        entries = read_entries(self._package)
        self._splits = {
            split: [e for e in found if e.category in self._categories]
            for split, found in split_entries(entries).items()
        }
        talks = read_conversations(
            self._package, [name for name in MULTI_TURN if name in self._categories]
        )
        if talks:  # no other split has these programs
            self._package.require_programs()
            self._splits[Split.TEST] += talks
            most = (MOST_STEPS + 1) * max(len(talk.turns) for talk in talks)
            vars(self).update(max_turns=most)  # per instance here, per class elsewhere
        self._by_id = {entry.id: entry for entry in (*entries, *talks)}
        has = tuple(split for split, found in self._splits.items() if found)
        vars(self).update(splits=has)  # per instance here, per class elsewhere
        self._specs: dict[str, list[ToolSpec]] = {}

    @cached_property
    def _checker(self) -> Checker:
        return Checker(self._package)

    def system_prompt(self) -> str:
        """Return an empty text, as the benchmark does for models that call tools."""
        return ""

    def tools(self) -> list[ToolSpec]:
        """Return an empty list, since each task has its own tools."""
        return []

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return up to ``count`` tasks, from each category in turn."""
        rng = Random(f"{split}/{seed}")
        queues: dict[str, list[Entry]] = {name: [] for name in self._categories}
        for entry in self._splits.get(split, ()):
            queues[entry.category].append(entry)
        for queue in queues.values():
            rng.shuffle(queue)
        longest = max(map(len, queues.values()))
        order = [q[n] for n in range(longest) for q in queues.values() if n < len(q)]
        return [_task(entry, split) for entry in order[:count]]

    def notes(self) -> list[str]:
        """Return a sentence with the number of tasks for training and for tests."""
        train, held_out = len(self._splits[Split.TRAIN]), len(self._splits[Split.TEST])
        said = (
            f"training takes {train:,} entries of BFCL v4; the {held_out:,} held-out "
            "ones have none of their functions. Compare with the leaderboard only what "
            "was not trained on it"
        )
        return [said]

    def create_environment(self, task: Task) -> Environment:
        """Return an environment whose tools are the functions of the task."""
        entry = self._entry(task)
        if isinstance(entry, ConversationEntry):
            return Programs(entry, self._specs_of(entry), self.sandbox)
        return _Functions(self._specs_of(entry))

    def sandbox_config(self) -> SandboxConfig:
        """Return a sandbox configuration that can import the simulated programs."""
        config = super().sandbox_config()
        if not any(name in MULTI_TURN for name in self._categories):
            return config
        return replace(
            config,
            python_path=(Path(self._programs.name),),
            limits=Limits(output_bytes=_MOST_PRINTED),
        )

    @cached_property
    def _programs(self) -> TemporaryDirectory[str]:
        made = TemporaryDirectory(prefix="agentgym-bfcl-")
        write_programs(self._package, Path(made.name))
        return made

    def close(self) -> None:
        """Close the sandbox, and delete the folder with the simulated programs."""
        super().close()
        if found := vars(self).pop("_programs", None):
            found.cleanup()

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode with the benchmark's checker.

        In a single-turn task, only the first answer with tool calls is scored, and
        right functions with wrong arguments earn a partial reward.
        """
        entry = self._entry(task)
        if isinstance(entry, ConversationEntry) and isinstance(environment, Programs):
            return score(entry, environment, trajectory)
        names = {spec.name for spec in self._specs_of(entry)}
        calls = answer_calls(trajectory, names)
        success = self._checker.accepts(entry, calls)
        if not entry.answers:
            readable = all(call.arguments is not None for call in calls)
            share = float(success)
            value = share if readable else share * _UNREADABLE
            return Reward(value, success, {"verdict": value}, share, share)
        if success:
            return Reward(1.0, True, {"verdict": 1.0}, 1.0, 1.0)
        tools, arguments = self._shares(entry, calls)
        value = _RIGHT_TOOLS * (tools == 1.0 and len(calls) == len(entry.answers))
        return Reward(value, False, {"right tools": value}, tools, arguments)

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return calls that the checker accepts; None for multi-turn tasks."""
        entry = self._entry(task)
        if isinstance(entry, ConversationEntry):
            return None
        if not entry.answers:
            return [] if entry.category in IRRELEVANCE else None
        for brief in (False, True):
            needed = right_calls(entry, brief=brief)
            made = [MadeCall(need.tool, need.arguments) for need in needed]
            if self._checker.accepts(entry, made):
                return needed
        return None

    def _shares(self, entry: Entry, calls: Sequence[MadeCall]) -> tuple[float, float]:
        tools = arguments = 0
        by_name, rest = [call.name for call in calls], list(calls)
        for number, need in enumerate(right_calls(entry)):
            if need.tool in by_name:
                by_name.remove(need.tool)
                tools += 1
            right = (c for c in rest if self._checker.is_right(entry, number, c))
            if (call := next(right, None)) is not None:
                rest.remove(call)
                arguments += 1
        return tools / len(entry.answers), arguments / len(entry.answers)

    def _specs_of(self, entry: Entry) -> list[ToolSpec]:
        if entry.id not in self._specs:
            if isinstance(entry, ConversationEntry):
                self._specs[entry.id] = program_tools(entry)
            else:
                self._specs[entry.id] = specs_of(entry)
        return self._specs[entry.id]

    def _entry(self, task: Task) -> Entry:
        if task.id not in self._by_id:
            raise NotFoundError(f"entry of {self.name}", task.id, self._by_id)
        return self._by_id[task.id]


class _Functions(Environment):
    """The environment of a single-turn task: its tools accept calls and do nothing."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._specs = specs

    def tools(self) -> list[Tool]:
        return [Tool(spec, _done) for spec in self._specs]


def _done(**arguments: Any) -> str:
    return "done"


def answer_calls(trajectory: Trajectory, tools: set[str]) -> list[MadeCall]:
    """Return the calls in the model's first answer with calls, as the model wrote them.

    The agent's own tools, e.g. hand-offs, are left out. Calls that the agent parses
    from text are returned if the model's answers have none.
    """
    ran: list[MadeCall] = []
    for step in trajectory.steps:
        match step:
            case ModelCall():
                if ran:  # an agent that writes calls as text
                    return ran
                offered = {name for tool in step.tools if (name := _name(tool))}
                found = [
                    MadeCall(call.name, parse_arguments(call.arguments))
                    for call in step.tool_calls
                    if call.name in tools or call.name not in offered
                ]
                if found:
                    return found
                requested = {call.id for call in step.tool_calls}
            case ToolCall() if step.id is None or step.id not in requested:
                ran.append(MadeCall(step.name, step.arguments))
    return ran


def _name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name")) if isinstance(function, Mapping) else ""


def _task(entry: Entry, split: Split) -> Task:
    answers: Sequence[Any] = entry.answers
    level, one_answer = 1, True
    if isinstance(entry, ConversationEntry):
        answers, level, one_answer = entry.right_calls, 3, False
    elif len(answers) > 1:
        level = 2
    return Task(
        id=entry.id,
        split=split,
        seed=0,
        family=entry.category,
        level=level,
        instruction=entry.request,
        goal={"answers": [*answers]},
        one_answer=one_answer,
    )
