"""Read the key ``rewards`` of a tasks file, which says how to reward code."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
    read_text,
    shown,
)
from agentgym.scenarios.tool_tasks.reward import LOWEST

_KEYS = ("code", "files", "hidden", "reference", "weights", "workload")
_CODE_KEYS = ("tool", "path", "file", "text")
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


def read_rewards(line: Mapping[str, Any], specs: Mapping[str, ToolSpec]) -> CodeRewards:
    """Read and check the key ``rewards`` of one line of a tasks file."""
    value = line["rewards"]
    if not isinstance(value, dict):
        raise BrokenLineError(f"`rewards` is {shown(value)}, not an object in {{}}")
    check_keys(value, _KEYS, "rewards")
    if "expect" in line:
        raise BrokenLineError(
            "it has `expect` and `rewards`: with `rewards` the code is paid and not "
            "the calls, so leave `expect` out"
        )
    code = value.get("code")
    if not isinstance(code, dict):
        raise BrokenLineError(
            f"rewards.code is {shown(code)}: name the tool that writes a file and its "
            'arguments, as in {"tool": "write_file", "path": "path", "text": "text"}'
        )
    check_keys(code, _CODE_KEYS, "rewards.code")
    tool = code.get("tool")
    if not isinstance(tool, str) or tool not in specs:
        raise BrokenLineError(
            f"rewards.code.tool is {shown(tool)}; there are: {', '.join(specs)}"
        )
    if ("path" in code) == ("file" in code):
        raise BrokenLineError(
            "rewards.code needs `path`, the argument with the file's path, or `file`, "
            "the path that the tool always writes, and not both"
        )
    known = specs[tool].parameters.get("properties", {})
    for key in ("path", "text"):
        name = code.get(key)
        if (key == "text" or key in code) and name not in known:
            raise BrokenLineError(
                f"rewards.code.{key} is {shown(name)}, which is not an argument of "
                f"{tool!r}; it takes {', '.join(known)}"
            )
    reference = _texts(value, "reference", required=True)
    return CodeRewards(
        tool=tool,
        path=code.get("path", ""),
        file=str(code.get("file", "")),
        text=code["text"],
        start=_texts(value, "files"),
        reference=reference,
        reward=_composed(value, reference),
    )


def _composed(
    value: Mapping[str, Any], reference: Mapping[str, str]
) -> ComposedReward[SubmittedCode]:
    hidden, workload = _object(value, "hidden"), _object(value, "workload")
    if not all(isinstance(each, dict) for each in hidden.values()):
        raise BrokenLineError(
            "rewards.hidden is not as in "
            '{"shop.py": {"total([2, 3])": 5}}: values of expressions by file'
        )
    if not all(isinstance(each, list) for each in workload.values()):
        raise BrokenLineError(
            "rewards.workload is not as in "
            '{"shop.py": ["total(range(10**6))"]}: a list of expressions by file'
        )
    usual = {**WEIGHTS, **({"efficiency": _EFFICIENCY} if workload else {})}
    weights = _object(value, "weights") or usual
    check_keys(weights, (*WEIGHTS, "efficiency"), "rewards.weights")
    if "correctness" not in weights:
        raise BrokenLineError(
            "rewards.weights leaves `correctness` out, without which any code is paid"
        )
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise BrokenLineError(
                f"rewards.weights.{name} is {shown(weight)}, not a number above 0"
            )
    if ("efficiency" in weights) != bool(workload):
        raise BrokenLineError(
            "rewards: `workload` and a weight of `efficiency` belong together"
        )
    try:
        parts: dict[str, RewardPart[SubmittedCode]] = {
            "correctness": Correctness(hidden),
            "style": Style(),
            "security": Security(),
            "complexity": Complexity(),
        }
        if workload:
            parts["efficiency"] = Efficiency(workload, reference)
        first, *others = [
            (part, float(weights[name]))
            for name, part in parts.items()
            if name in weights
        ]
        return ComposedReward(first, *others)
    except ScenarioError as error:
        raise BrokenLineError(f"rewards: {error}") from None


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key, {})
    if not isinstance(found, dict):
        raise BrokenLineError(f"rewards.{key} is {shown(found)}, not an object in {{}}")
    return found


def _texts(
    value: Mapping[str, Any], key: str, *, required: bool = False
) -> dict[str, str]:
    found = _object(value, key)
    if not all(isinstance(text, str) for text in found.values()):
        raise BrokenLineError(f"rewards.{key} is not the texts of files by their paths")
    if required and not found:
        raise BrokenLineError(
            f"rewards.{key} is missing: give the files of a right solution, which "
            "`agentgym scenarios check` tries"
        )
    return found
