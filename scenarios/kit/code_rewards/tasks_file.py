"""Read the key ``rewards`` of a tasks file, which says how to reward code."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agentgym.core.needs import NeededCall
from agentgym.core.task import TaskSource
from agentgym.core.tools import ToolOutcome, ToolSpec
from agentgym.core.trajectory import Reward, ToolCall
from agentgym.errors import SandboxError, ScenarioError
from agentgym.packs.kit.code_rewards.efficiency import Efficiency
from agentgym.packs.kit.code_rewards.parts import (
    ComposedReward,
    Correctness,
    RewardPart,
    SubmittedCode,
)
from agentgym.packs.kit.code_rewards.static_checks import (
    EXTRA,
    Complexity,
    Security,
    Style,
)
from agentgym.sandbox import Sandbox
from agentgym.sandbox.commands import check_files
from agentgym.scenarios.plan_reward import NO_CALL
from agentgym.scenarios.tool_tasks.lines import (
    BrokenLineError,
    check_keys,
    read_as,
    read_text,
    shown,
)
from agentgym.scenarios.tool_tasks.reward import LOWEST

WEIGHTS = {"correctness": 6.0, "style": 1.0, "security": 2.0, "complexity": 1.0}
"""Default weights; ``efficiency`` has 2 if there is a workload."""
_EFFICIENCY = 2.0


@dataclass(frozen=True)
class CodeRewards:
    """The reward for the code that an agent writes with a tool, for one task.

    Attributes:
        path: Name of the tool's argument with the file's path; empty if the tool always
            writes the same file.
        file: Path of the file that the tool always writes; empty if ``path`` is given.
        text: Name of the tool's argument with the file's text.
        reference: Text of each file of a right solution, by path.
    """

    tool: str
    path: str
    file: str
    text: str
    start: Mapping[str, str]
    reference: Mapping[str, str]
    reward: ComposedReward[SubmittedCode]

    @property
    def plan(self) -> list[NeededCall]:
        """The calls that write ``reference``; other code may be right too."""
        judged = frozenset({self.text, *([self.path] if self.path else [])})
        return [
            NeededCall(
                self.tool,
                {self.text: text, **({self.path: path} if self.path else {})},
                by_outcome=judged,
            )
            for path, text in self.reference.items()
        ]

    def files_after(self, calls: Sequence[ToolCall]) -> dict[str, str]:
        """Return the text of each file after the calls, by path."""
        files = dict(self.start)
        for call in calls:
            given = call.arguments or {}
            if call.name == self.tool and call.outcome is ToolOutcome.OK:
                path = given.get(self.path, self.file) if self.path else self.file
                files[str(path)] = str(given.get(self.text, ""))
        return files

    def score_calls(
        self,
        calls: Sequence[ToolCall],
        forbidden: Collection[str],
        sandbox: Sandbox,
    ) -> Reward:
        """Return the reward of the code that an episode's calls wrote."""
        if any(call.name in forbidden for call in calls):
            return Reward(LOWEST, False, {"forbidden": LOWEST})
        if not calls:
            return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
        right_tool = float(any(call.name == self.tool for call in calls))
        reward = self._score(self.files_after(calls), sandbox)
        right = float(reward.success)
        return replace(reward, right_tool=right_tool, right_arguments=right)

    def score_changes(self, changes: Mapping[str, str], sandbox: Sandbox) -> Reward:
        """Return the reward of changed files, each with its text by path."""
        return self._score({**self.start, **changes}, sandbox)

    def _score(self, files: Mapping[str, str], sandbox: Sandbox) -> Reward:
        """Return the reward of the final files; 0 if unchanged or a path is invalid."""
        try:
            check_files(files)
        except SandboxError:
            files = self.start
        if files == self.start:
            return Reward(0.0, False, dict.fromkeys(self.reward.weights, 0.0))
        code = SubmittedCode(files=files, start=self.start, sandbox=sandbox)
        return self.reward.score(code)


def extras_of_file(reference: str) -> tuple[str, ...]:
    """Return the extras of agentgym that a tasks file needs; load no tools."""
    text = read_text(Path(TaskSource.parse(reference).path))
    return (EXTRA,) if '"rewards"' in text else ()


class _Code(BaseModel):
    """The tool that writes a file, and the names of its arguments."""

    model_config = ConfigDict(strict=True)

    tool: str
    text: str
    path: str = ""
    file: str = ""


class _Rewards(BaseModel):
    """The key ``rewards`` of a line."""

    model_config = ConfigDict(strict=True)

    code: Any
    reference: dict[str, str] = Field(min_length=1)
    hidden: dict[str, dict[str, Any]] = {}
    files: dict[str, str] = {}
    weights: dict[str, float] = {}
    workload: dict[str, list[str]] = {}


def read_rewards(line: Mapping[str, Any], specs: Mapping[str, ToolSpec]) -> CodeRewards:
    """Read and check the key ``rewards`` of one line of a tasks file."""
    given = read_as(_Rewards, line["rewards"], "rewards")
    code = read_as(_Code, given.code, "rewards.code")
    if "expect" in line:
        raise BrokenLineError(
            "it has `expect` and `rewards`: with `rewards` the code is paid and not "
            "the calls, so leave `expect` out"
        )
    if code.tool not in specs:
        raise BrokenLineError(
            f"rewards.code.tool is {shown(code.tool)}; there are: {', '.join(specs)}"
        )
    if bool(code.path) == bool(code.file):
        raise BrokenLineError(
            "rewards.code needs `path`, the argument with the file's path, or `file`, "
            "the path that the tool always writes, and not both"
        )
    known = specs[code.tool].parameters.get("properties", {})
    for name in filter(None, (code.path, code.text)):
        if name not in known:
            raise BrokenLineError(
                f"rewards.code: {shown(name)} is not an argument of {code.tool!r}; it "
                f"takes {', '.join(known)}"
            )
    return CodeRewards(
        **code.model_dump(),
        start=given.files,
        reference=given.reference,
        reward=_composed(given),
    )


def _composed(given: _Rewards) -> ComposedReward[SubmittedCode]:
    usual = {**WEIGHTS, **({"efficiency": _EFFICIENCY} if given.workload else {})}
    weights = given.weights or usual
    check_keys(weights, (*WEIGHTS, "efficiency"), "rewards.weights")
    if "correctness" not in weights:
        raise BrokenLineError(
            "rewards.weights leaves `correctness` out, without which any code is paid"
        )
    if ("efficiency" in weights) != bool(given.workload):
        raise BrokenLineError(
            "rewards: `workload` and a weight of `efficiency` belong together"
        )
    try:
        parts: dict[str, RewardPart[SubmittedCode]] = {
            "correctness": Correctness(given.hidden),
            "style": Style(),
            "security": Security(),
            "complexity": Complexity(),
        }
        if given.workload:
            parts["efficiency"] = Efficiency(given.workload, given.reference)
        first, *others = [
            (part, weights[name]) for name, part in parts.items() if name in weights
        ]
        return ComposedReward(first, *others)
    except ScenarioError as error:
        raise BrokenLineError(f"rewards: {error}") from None
