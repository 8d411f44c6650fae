"""The scenario of BFCL v4 (Berkeley Function Calling Leaderboard)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolSpec, parse_arguments
from agentgym.core.trajectory import ModelCall, Reward, ToolCall, Trajectory
from agentgym.errors import NotFoundError
from agentgym.sandbox import Limits, SandboxConfig
from agentgym.scenarios.base import Environment, Scenario
from agentgym.scenarios.bfcl.answers import right_calls
from agentgym.scenarios.bfcl.conversations import ConversationEntry, read_conversations
from agentgym.scenarios.bfcl.entries import (
    IRRELEVANCE,
    MULTI_TURN,
    Entry,
    chosen_categories,
    read_entries,
    split_entries,
)
from agentgym.scenarios.bfcl.functions import specs_of
from agentgym.scenarios.bfcl.package import Package
from agentgym.scenarios.bfcl.programs import (
    MOST_STEPS,
    Programs,
    program_tools,
    score,
    write_programs,
)
from agentgym.scenarios.bfcl.verdict import Checker, MadeCall

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
        self._program_tools: dict[str, dict[str, ToolSpec]] = {}

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
        """Return up to ``count`` tasks, from each category in turn.

        The seed determines their order.
        """
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
        train, held_out = (
            len(self._splits[split]) for split in (Split.TRAIN, Split.TEST)
        )
        said = (
            f"training takes {train:,} entries of BFCL v4; the {held_out:,} held-out "
            "ones have none of their functions. Compare with the leaderboard only what "
            "was not trained on it"
        )
        return [said]

    def create_environment(self, task: Task) -> Environment:
        """Return an environment whose tools are the functions of the task.

        The tools of single-turn tasks do nothing. Those of multi-turn tasks act on
        simulated programs.
        """
        entry = self._entry(task)
        if isinstance(entry, ConversationEntry):
            if entry.id not in self._program_tools:
                self._program_tools[entry.id] = program_tools(entry)
            return Programs(entry, self._program_tools[entry.id], self.sandbox)
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

        All calls of a multi-turn task are scored. In a single-turn task, only the
        model's first answer with tool calls is scored, and right functions with wrong
        arguments earn a partial reward.
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
        """Return calls that the benchmark's checker accepts; None if they are unknown.

        They are also None for multi-turn tasks, whose calls belong to certain turns.
        """
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
        """Return which shares of the needed calls have the right tool and arguments.

        Each call of the model counts for at most one needed call.

        Args:
            entry: The test case.
            calls: The model's calls.

        Returns:
            The share whose tool was called, and the share that was made with right
            arguments.
        """
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

    Calls of the agent's own tools, e.g. hand-offs to other agents, are left out. If
    the model's answers have no calls because the agent parses them from text, these
    parsed calls are returned.

    Args:
        trajectory: A finished episode.
        tools: Names of the task's tools.
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
