"""Code benchmarks as scenarios: the code in an answer is tested in the sandbox."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import ClassVar, Literal

from agentgym.core.components import TrainTokens
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import NotFoundError, UsageError
from agentgym.sandbox import Limits, SandboxConfig
from agentgym.scenarios.base import Environment, Scenario
from agentgym.scenarios.benchmarks.asserts import read_humaneval, read_mbpp
from agentgym.scenarios.benchmarks.contests import read_livecodebench
from agentgym.scenarios.benchmarks.outputs import read_humaneval_plus, read_mbpp_plus
from agentgym.scenarios.benchmarks.problems import BenchmarkProblem
from agentgym.scenarios.benchmarks.programs import Joined, read_multipl_e

_LIMITS = Limits(memory_mb=4096, total_memory_mb=4096, output_bytes=8 << 20)
_HELD_OUT = 50
"""Percentage of problems in the test split, if the benchmark has no splits."""


class CodeBenchmark(Scenario):
    """Base class of benchmarks in which an answer is code.

    Args:
        problems: The problems in the benchmark's data file.

    Raises:
        UsageError: The file is missing, has another format, or has a problem twice.
    """

    difficulty: ClassVar[Literal["advanced"]] = "advanced"
    estimated_time = "for real models; minutes to hours, by the model"
    reward_range = (0.0, 1.0)
    options: ClassVar[tuple[str, ...]] = ("data",)
    train_tokens: ClassVar[TrainTokens] = "all"

    def __init__(self, problems: Iterator[BenchmarkProblem]) -> None:
        self._by_id: dict[str, BenchmarkProblem] = {}
        for problem in problems:
            if problem.id in self._by_id:
                raise UsageError(
                    f"The data of {self.name} have the problem {problem.id!r} twice; "
                    "each id may stand there once."
                )
            self._by_id[problem.id] = problem
        self._splits: dict[Split, list[BenchmarkProblem]] = {}
        for problem in self._by_id.values():
            self._splits.setdefault(problem.split or _drawn(problem.id), []).append(
                problem
            )
        has = tuple(split for split in Split if self._splits.get(split))
        vars(self).update(splits=has)  # per instance here, per class elsewhere

    def system_prompt(self) -> str:
        """Return an empty text, since these benchmarks have no system prompt."""
        return ""

    def tools(self) -> list[ToolSpec]:
        """Return an empty list, since a model answers without tools."""
        return []

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return up to ``count`` problems of a split; the seed determines their order.

        Raises:
            UsageError: The split has no problems.
        """
        found = [*self._splits.get(split, ())]
        if not found:
            raise UsageError(
                f"None of the problems of {self.name} is in the split {split.value!r}; "
                f"its data have {len(self._by_id)}. `agentgym eval --split all` "
                "measures those of every split; training needs some in train, "
                "validation and test."
            )
        Random(f"{split}/{seed}").shuffle(found)
        return [
            Task(
                id=problem.id,
                split=split,
                seed=0,
                family=problem.family,
                level=problem.level,
                instruction=problem.instruction,
            )
            for problem in found[:count]
        ]

    def notes(self) -> list[str]:
        """Return a sentence with the number of problems that are used for training."""
        count = len(self._splits.get(Split.TRAIN, ()))
        said = (
            f"training takes {count} of {len(self._by_id)} problems; to compare an "
            "untrained model with published figures: agentgym eval --split all"
        )
        return [said]

    def create_environment(self, task: Task) -> Environment:
        """Return an environment without tools."""
        return _NoTools()

    def sandbox_config(self) -> SandboxConfig:
        """Return a sandbox configuration with limits for memory and output."""
        return replace(super().sandbox_config(), limits=_LIMITS)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Return 1 if the code of the answer passes all tests, else 0."""
        if task.id not in self._by_id:
            raise NotFoundError(f"problem of {self.name}", task.id, self._by_id)
        problem = self._by_id[task.id]
        code = problem.code(trajectory.answer or "")
        right = bool(code.strip()) and problem.judge.accepts(self.sandbox, code)
        return Reward(float(right), right, {"tests": float(right)})


class _NoTools(Environment):
    """An environment without tools and state, since only the answer is scored."""


def _drawn(identity: str) -> Split:
    """Return the split of a problem, chosen by a hash of its id."""
    number = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:4]) % 100
    if number < _HELD_OUT:
        return Split.TEST
    return Split.VALIDATION if number < _HELD_OUT + 10 else Split.TRAIN


class HumanEvalScenario(CodeBenchmark):
    """The benchmark HumanEval with its original tests."""

    name = "humaneval"
    description = "Complete Python functions: HumanEval."

    def __init__(self, data: str = "") -> None:
        super().__init__(read_humaneval(data))


class HumanEvalPlusScenario(CodeBenchmark):
    """The benchmark HumanEval+ of EvalPlus: HumanEval with many more test inputs."""

    name = "humaneval_plus"
    description = "Complete Python functions: HumanEval+, many more inputs."

    def __init__(self, data: str = "") -> None:
        super().__init__(read_humaneval_plus(data))


class MbppScenario(CodeBenchmark):
    """The benchmark MBPP with its own splits, from the full or the sanitized file."""

    name = "mbpp"
    description = "Write small Python functions: MBPP, full or sanitized."

    def __init__(self, data: str = "") -> None:
        super().__init__(read_mbpp(data))


class MbppPlusScenario(CodeBenchmark):
    """The benchmark MBPP+ of EvalPlus: MBPP with many more test inputs."""

    name = "mbpp_plus"
    description = "Write small Python functions: MBPP+, many more inputs."

    def __init__(self, data: str = "") -> None:
        super().__init__(read_mbpp_plus(data))


class LiveCodeBenchScenario(CodeBenchmark):
    """The benchmark LiveCodeBench, or only its contests between two dates.

    Args:
        data: Path of the data file.
        start: First contest date, e.g. 2025-01-31; empty for no limit.
        end: Last contest date in the same form; empty for no limit.
    """

    name = "livecodebench"
    description = "Solve contest problems in Python: LiveCodeBench."
    options = ("data", "start", "end")

    def __init__(self, data: str = "", start: str = "", end: str = "") -> None:
        super().__init__(read_livecodebench(data, start, end))

    def sandbox_config(self) -> SandboxConfig:
        """Return a sandbox configuration that allows hidden tests of many megabytes."""
        limits = replace(_LIMITS, file_mb=512, output_bytes=16 << 20)
        return replace(super().sandbox_config(), limits=limits)


class MultiPlEScenario(CodeBenchmark):
    """The benchmark MultiPL-E in JavaScript, Go and Rust."""

    name = "multipl_e"
    description = "Complete functions in JavaScript, Go or Rust: MultiPL-E."

    def __init__(self, data: str = "") -> None:
        super().__init__(read_multipl_e(data))

    def sandbox_config(self) -> SandboxConfig:
        """Return a sandbox configuration with the problems' programming languages."""
        judges = (problem.judge for problem in self._by_id.values())
        names = {judge.language for judge in judges if isinstance(judge, Joined)}
        return replace(super().sandbox_config(), languages=tuple(sorted(names)))
