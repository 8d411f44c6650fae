"""Read a tasks file, which has one request per line, with its expected calls."""

import itertools
import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from agentgym.core.made_up import NoValueError
from agentgym.core.needs import NeededCall
from agentgym.core.registry import loaders
from agentgym.core.task import Split
from agentgym.core.tools import ToolSpec, result_text
from agentgym.core.trajectory import Reward, ToolCall
from agentgym.errors import UsageError
from agentgym.plugins import registered
from agentgym.scenarios.tool_tasks.judging import check_files
from agentgym.scenarios.tool_tasks.lines import (
    BrokenLineError,
    arguments_fault,
    by_fault,
    check_keys,
    numbered_lines,
    read_as,
    read_object,
    shown,
    task_lines,
)
from agentgym.scenarios.tool_tasks.stubs import example
from agentgym.scenarios.tool_tasks.unseen import AgentTools, AnyTools

if TYPE_CHECKING:
    from agentgym.sandbox import Sandbox

Specs = Mapping[str, ToolSpec]

_OWN_KEYS = {"expect", "forbid", "answers", "tools", "rewards"}
_MOST_VALUES = 64
_MOST_SHOWN = 5
_HAND_OFF = re.compile(r"transfer_|hand_?off|delegate", re.IGNORECASE)
_NO_TEXT = object()


@dataclass(frozen=True)
class Answer:
    """A recorded answer to a tool call, and to calls with equal arguments."""

    call: NeededCall
    text: str


class CodeReward(Protocol):
    """The reward for the code that calls write: the key ``rewards`` of a line."""

    @property
    def plan(self) -> list[NeededCall]:
        """The calls that write a right solution; other code may be right too."""

    def score_calls(
        self,
        calls: Sequence[ToolCall],
        forbidden: Collection[str],
        sandbox: "Sandbox",
    ) -> Reward:
        """Return the reward of the code that calls wrote."""

    def score_changes(self, changes: Mapping[str, str], sandbox: "Sandbox") -> Reward:
        """Return the reward of changed files, each with its text by path."""


@dataclass(frozen=True)
class TaskLine:
    """One task: a valid line of a tasks file.

    Attributes:
        expect: The expected calls: those that the request needs. ``NeededCall.instead``
            has other calls that are equally right.
        ordered: Whether the expected calls must be made in this order.
        answers: Recorded answers, first to expected calls, then to other calls.
        tools: The task's own tools by name, which replace the file's tools; may be
            empty.
        code: The reward for code that calls write. ``expect`` then has the calls that
            write one right solution. None if the calls themselves are scored.
        files: Text of each file in the program's working folder, by path; or a folder
            to copy, relative to the tasks file. None if there are no files.
        source: The line as a JSON object, converted to the format of tasks files.
    """

    number: int
    id: str
    instruction: str
    expect: tuple[NeededCall, ...]
    ordered: bool
    forbid: frozenset[str]
    split: Split | None
    answers: tuple[Answer, ...]
    configurable: dict[str, Any]
    tools: Mapping[str, ToolSpec]
    code: CodeReward | None
    files: dict[str, str] | str | None
    source: dict[str, Any] = field(repr=False)

    @property
    def family(self) -> str:
        """The kind of task: the tools of the expected calls, joined by ``+``."""
        return "+".join(need.tool for need in self.expect) or "no call"

    @property
    def values(self) -> dict[str, Any]:
        """The different values in the expected calls' arguments, by their JSON."""
        found = (
            value
            for need in self.expect
            for call in (need, *need.instead)
            for arguments in (call.arguments, *call.others)
            for name, value in arguments.items()
            if name not in call.by_outcome
        )
        return {json.dumps(v, sort_keys=True): v for v in _leaves(found)}


def read_task_lines(path: Path, specs: Specs, *, checked: bool) -> list[TaskLine]:
    """Read and validate a whole tasks file."""
    lines: list[TaskLine] = []
    wrong: dict[str, list[str]] = {}
    seen: dict[str, int] = {}
    for number, text in task_lines(path):
        try:
            line = read_line(number, text, specs, checked=checked)
        except BrokenLineError as error:
            wrong.setdefault(str(error), []).append(f"line {number}")
            continue
        if line.id in seen:
            fault = f"line {seen[line.id]} has the id {line.id!r}, too"
            wrong.setdefault(fault, []).append(f"line {number}")
        seen.setdefault(line.id, number)
        lines.append(line)
    if wrong:
        faults = by_fault(wrong)
        more = len(faults) - _MOST_SHOWN
        also = f"\n… and {more} more" if more > 0 else ""
        raise UsageError(f"{path}:\n" + "\n".join(faults[:_MOST_SHOWN]) + also)
    if not lines:
        raise UsageError(
            f"{path} has no tasks: write one a line, as in "
            '{"instruction": "…", "expect": [{"tool": "…", "args": {…}}]}, or begin '
            "with `agentgym tasks starter`."
        )
    return lines


def check_lines(path: Path) -> None:
    """Raise if a tasks file is wrong whatever the agent's tools are."""
    read_task_lines(path, AnyTools(), checked=True)


def carries_tools(path: Path) -> bool:
    """Return whether a file's first task has its own tools."""
    return "tools" in _first_line(path)


def has_expectations(path: Path) -> bool:
    """Return whether a file's first task has tools, expected calls or their rewards."""
    return not _OWN_KEYS.isdisjoint(_first_line(path))


def _first_line(path: Path) -> dict[str, Any]:
    with suppress(BrokenLineError):
        for _, text in task_lines(path):
            return _read(text)
    return {}


def _read(text: str) -> dict[str, Any]:
    line = read_object(text)
    for load in _formats().values() if "instruction" not in line else ():
        line = load()(line)
    return line


_formats = cache(partial(loaders, "agentgym.task_formats"))  # finding them takes 2 ms


def read_answers(path: Path, specs: Specs) -> list[Answer]:
    """Read recorded answers, one ``{"tool": …, "args": …, "answer": …}`` per line."""
    if not path.exists():
        return []
    found = []
    for number, text in numbered_lines(path):
        try:
            found.append(_answer(read_object(text), specs, "it"))
        except BrokenLineError as error:
            raise UsageError(f"{path}, line {number}: {error}.") from None
    return found


def answers_path(tasks: str | os.PathLike[str]) -> Path:
    """Return the path of the file with recorded answers, next to the tasks file."""
    return Path(tasks).with_suffix(".answers.jsonl")


class _Line(BaseModel):
    """The keys of a task's line; calls, answers and tools are read later."""

    model_config = ConfigDict(strict=True, defer_build=True)

    instruction: str = Field(pattern=r"\S")
    expect: list[Any] = []
    ordered: bool = True
    forbid: list[Any] = []
    split: Split | None = Field(None, strict=False)
    id: Annotated[str, Field(min_length=1)] | int | None = None
    answers: list[Any] = []
    configurable: dict[str, Any] = {}
    tools: list[Any] = Field([], min_length=1)
    rewards: Any = None
    files: dict[str, str] | str | None = None


class _Call(BaseModel):
    """An expected call, or a call with its recorded answer."""

    model_config = ConfigDict(strict=True, defer_build=True)

    tool: Any = None
    args: dict[str, Any] = {}
    answer: Any = _NO_TEXT


def read_line(number: int, text: str, specs: Specs, *, checked: bool) -> TaskLine:
    """Read and validate one line of a tasks file."""
    source = _read(text)
    line = read_as(_Line, source, "it")
    tools = _own_tools(line.tools)
    specs = tools or specs
    if not specs and not isinstance(specs, AgentTools) and (line.expect or not checked):
        raise BrokenLineError(
            "it has no `tools`, and none are named for the whole file (--tools-from)"
        )
    answers: list[Answer] = []
    code: CodeReward | None = None
    if "rewards" in source and not isinstance(specs, AnyTools):
        code = registered("agentgym.code_rewards", "read")(source, specs)
        for need in code.plan:
            _validate(specs[need.tool], dict(need.arguments), "rewards.code")
    expect = [
        _need(value, specs, f"expect[{place}]", answers)
        for place, value in enumerate(line.expect)
    ]
    if code:
        expect = code.plan
    if not expect and not checked:
        raise BrokenLineError(
            "it expects no call, so doing nothing would be paid: name one in `expect`, "
            "or give a check function (--check)"
        )
    forbid = [_tool(name, specs, "forbid") for name in line.forbid]
    for name in forbid:
        if any(name in need.tools for need in expect):
            raise BrokenLineError(f"{name!r} is both expected and forbidden")
    answers += [
        _answer(value, specs, f"answers[{place}]")
        for place, value in enumerate(line.answers)
    ]
    if isinstance(line.files, dict) and (problem := check_files(line.files)):
        raise BrokenLineError(f"`files`: {problem}")
    return TaskLine(
        number=number,
        id=f"line-{number}" if line.id is None else str(line.id),
        instruction=line.instruction,
        expect=tuple(expect),
        ordered=line.ordered,
        forbid=frozenset(forbid),
        split=line.split,
        answers=tuple(answers),
        configurable=line.configurable,
        tools=tools,
        code=code,
        files=line.files,
        source=source,
    )


def _own_tools(tools: Sequence[Any]) -> dict[str, ToolSpec]:
    """Return a line's own tools by name; empty if it does not have any."""
    from agentgym.scenarios.schemas import spec_of_openai  # jsonschema imports slowly

    found: dict[str, ToolSpec] = {}
    for place, tool in enumerate(tools):
        try:
            spec = spec_of_openai(tool)
        except ValueError as error:
            raise BrokenLineError(f"tools[{place}]: {error}") from None
        if spec.name in found:
            raise BrokenLineError(f"tools[{place}]: two tools are named {spec.name!r}")
        found[spec.name] = spec
    return found


def _need(value: Any, specs: Specs, where: str, answers: list[Answer]) -> NeededCall:
    """Read an expected call, which may have alternatives, and its recorded answers."""
    if not isinstance(value, dict) or "any" not in value:
        return _call(value, specs, where, answers)
    check_keys(value, ("any", "answer"), where)
    options = value["any"]
    if not isinstance(options, list) or not options:
        raise BrokenLineError(f"{where}.any names no call")
    first, *rest = (
        _call(
            option, specs, f"{where}.any[{n}]", answers, value.get("answer", _NO_TEXT)
        )
        for n, option in enumerate(options)
    )
    return replace(first, instead=tuple(rest))


def _call(
    value: Any,
    specs: Specs,
    where: str,
    answers: list[Answer],
    shared: Any = _NO_TEXT,
) -> NeededCall:
    given = read_as(_Call, value, where)
    spec, args = specs[_tool(given.tool, specs, f"{where}.tool")], given.args
    open_ones = frozenset(n for n, v in args.items() if v == {"anything": True})
    choices = [
        [_anything(spec, name, where)]
        if name in open_ones
        else _values(v, f"{where}.{name}")
        for name, v in args.items()
    ]
    if math.prod(map(len, choices)) > _MOST_VALUES:
        raise BrokenLineError(
            f"{where} accepts more than {_MOST_VALUES} combinations of values"
        )
    accepted = [
        dict(zip(args, each, strict=True)) for each in itertools.product(*choices)
    ]
    for arguments in accepted:
        _validate(spec, arguments, where)
    need = NeededCall(spec.name, accepted[0], tuple(accepted[1:]), open_ones)
    text = shared if given.answer is _NO_TEXT else given.answer
    if text is not _NO_TEXT:
        answers.append(Answer(need, result_text(text)))
    return need


def _anything(spec: ToolSpec, name: str, where: str) -> Any:
    """Return a value for an argument that may have any value."""
    try:
        return example(spec.parameters, name)
    except NoValueError:
        raise BrokenLineError(
            f"{where}.{name}: no value was found that {spec.name!r} accepts; "
            'give one, or several as {"one_of": […]}'
        ) from None


def _values(value: Any, where: str) -> list[Any]:
    """Return the right values of an argument: those in ``one_of``, or the value."""
    if not (isinstance(value, dict) and list(value) == ["one_of"]):
        return [value]
    accepted = value["one_of"]
    if not isinstance(accepted, list) or not accepted:
        raise BrokenLineError(
            f"{where}.one_of is {shown(accepted)}, not a list of values"
        )
    return accepted


def _answer(value: Any, specs: Specs, where: str) -> Answer:
    given = read_as(_Call, value, where)
    if given.answer is _NO_TEXT:
        raise BrokenLineError(f"{where} has no `answer`: {shown(value)}")
    spec = specs[_tool(given.tool, specs, f"{where}.tool")]
    _validate(spec, given.args, where)
    return Answer(NeededCall(spec.name, given.args), result_text(given.answer))


def _validate(spec: ToolSpec, arguments: dict[str, Any], where: str) -> None:
    if fault := arguments_fault(spec, arguments):
        raise BrokenLineError(f"{where}: {fault}")


def _tool(name: Any, specs: Specs, where: str) -> str:
    if isinstance(name, str) and name in specs:
        return name
    if isinstance(specs, AgentTools) and specs.admit(name):
        return str(name)
    close = get_close_matches(str(name), specs, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if _HAND_OFF.search(str(name)):
        hint += (
            " If it hands over to another agent, leave it out: expect the calls that "
            "the other agent has to make."
        )
    known = f" There are: {', '.join(specs)}" if specs else ""
    raise BrokenLineError(f"{where}: no tool is named {shown(name)}.{hint}{known}")


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from _leaves(value.values())
        elif isinstance(value, list):
            yield from _leaves(value)
        else:
            yield value
