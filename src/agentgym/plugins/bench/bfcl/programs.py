"""Run the simulated programs of multi-turn entries in the sandbox.

The benchmark simulates programs, e.g. a file system or a trading account, on which the
functions of an entry (test case) act.
"""

import asyncio
import inspect
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from agentgym.core.tools import Tool, ToolSpec
from agentgym.core.trajectory import ModelCall, Reward, Trajectory
from agentgym.errors import ToolError, UsageError
from agentgym.plugins.bench.bfcl import replay
from agentgym.plugins.bench.bfcl.entries import ConversationEntry, specs_of
from agentgym.plugins.bench.bfcl.package import NAME, PROGRAMS, Package
from agentgym.sandbox import PythonScript, Sandbox, SandboxResult
from agentgym.scenarios.base import Environment

MOST_STEPS = 20
"""Most answers with tool calls in a turn; after more, the benchmark ends a
conversation."""
_SCRIPT = PythonScript("replay.py")
_TIMEOUT_S = 20.0


def write_programs(package: Package, folder: Path) -> None:
    """Copy the simulated programs, and ``mpmath``, which they import, into a folder."""
    package.require_programs()
    for name in PROGRAMS:
        file = folder / NAME / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(package.text(name), encoding="utf-8")
    found = find_spec("mpmath")
    if found is None or not found.submodule_search_locations:
        raise UsageError(
            "The multi-turn categories of BFCL compute with mpmath, which is not "
            "installed: pip install mpmath"
        )
    shutil.copytree(
        found.submodule_search_locations[0],
        folder / "mpmath",
        ignore=shutil.ignore_patterns("tests", "__pycache__"),
    )


class Programs(Environment):
    """The environment of a multi-turn task, whose tools act on simulated programs.

    For each call, the sandbox starts new programs and repeats all earlier calls, so no
    process has to stay alive between calls.
    """

    def __init__(
        self,
        entry: ConversationEntry,
        specs: Sequence[ToolSpec],
        sandbox: Sandbox,
    ) -> None:
        self.turns: list[list[list[Any]]] = [[]]
        self.ended = False
        self._entry = entry
        self._sandbox = sandbox
        self._specs = {spec.name: spec for spec in specs}
        self._offered = [f["name"] for f in entry.functions]
        self._one_at_a_time = asyncio.Lock()

    def tools(self) -> list[Tool]:
        """Return the tools that are available in the current turn."""
        return [
            Tool(self._specs[name], partial(self._call, name)) for name in self._offered
        ]

    def user_reply(self, message: str) -> str | None:
        """Start the next turn with its tools; return its message, None at the end."""
        turn = len(self.turns)
        if turn == len(self._entry.turns):
            self.ended = True
            return None
        self.turns.append([])
        self._offered += [f["name"] for f in self._entry.later.get(turn, ())]
        return self._entry.turns[turn]

    async def _call(self, tool: str, /, **arguments: Any) -> str:
        if odd := [name for name in arguments if not name.isidentifier()]:
            raise ToolError(f"{odd[0]!r} cannot be the name of an argument.")
        async with self._one_at_a_time:
            turn = self.turns[-1]
            turn.append([tool, arguments])
            result = await self._sandbox.run(
                self._job(None), _SCRIPT, timeout_s=_TIMEOUT_S
            )
            try:
                return str(_read(result)["result"])
            except _UnfinishedError as error:
                turn.pop()  # otherwise each later call would hit the same limit
                raise ToolError(str(error)) from None

    def is_valid(self) -> bool:
        """Return whether the benchmark's checker accepts the calls of all turns."""
        if not self.ended:
            return False
        files = self._job(self._entry.right_calls)
        result = self._sandbox.run_sync(files, _SCRIPT, timeout_s=_TIMEOUT_S)
        try:
            return bool(_read(result)["valid"])
        except _UnfinishedError:
            return False

    def _job(self, answers: Sequence[Sequence[str]] | None) -> dict[str, str]:
        """Return the script's files; with ``answers``, it checks all calls."""
        entry = {
            "id": self._entry.id,
            "initial_config": self._entry.start,
            "involved_classes": self._entry.programs,
        }
        job = {"entry": entry, "turns": self.turns, "answers": answers}
        return {_SCRIPT.path: inspect.getsource(replay), "job.json": json.dumps(job)}


def score(
    entry: ConversationEntry, programs: Programs, trajectory: Trajectory
) -> Reward:
    """Score a conversation: 1 if the benchmark's checker accepts it, else 0."""
    success = _keeps_to_steps(trajectory) and programs.is_valid()
    value = float(success)
    needed = entry.named_calls()
    made = [(name, arguments) for turn in programs.turns for name, arguments in turn]
    if not needed:
        return Reward(value, success, {"verdict": value}, None, None)
    tools = Counter(name for name, _ in needed) & Counter(name for name, _ in made)
    calls = Counter(map(_key, needed)) & Counter(map(_key, made))
    shares = tools.total() / len(needed), calls.total() / len(needed)
    return Reward(value, success, {"verdict": value}, *shares)


def _key(call: tuple[str, dict[str, Any]]) -> str:
    return json.dumps(call, sort_keys=True)


def _keeps_to_steps(trajectory: Trajectory) -> bool:
    """Return whether each turn has at most ``MOST_STEPS`` answers with tool calls."""
    steps = 0
    for step in trajectory.steps:
        if isinstance(step, ModelCall):
            steps = steps + 1 if step.tool_calls else 0
            if steps > MOST_STEPS:
                return False
    return True


def program_tools(entry: ConversationEntry) -> list[ToolSpec]:
    """Return all tools of a multi-turn entry, also those of later turns."""
    return [_unchecked(spec) for spec in specs_of(entry, entry.every_function)]


def _unchecked(spec: ToolSpec) -> ToolSpec:
    """Return a copy of a tool's spec that accepts any arguments."""

    # The benchmark does not check arguments either.
    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow")

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return spec.parameters

    return replace(spec, args_model=Arguments)


class _UnfinishedError(Exception):
    """A call did not finish in the sandbox, e.g. due to its time or memory limit."""


def _read(result: SandboxResult) -> dict[str, Any]:
    if result.checked().status != "exited" or result.exit_code or result.truncated:
        *_, last = ["", *result.stderr.strip().splitlines()]
        raise _UnfinishedError(f"the call did not end: {result.status} {last}".strip())
    found: dict[str, Any] = json.loads(result.stdout)
    return found
