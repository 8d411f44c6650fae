"""Code benchmarks as scenarios: the code in an answer is tested in the sandbox."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

from agentgym.core.components import TrainTokens
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import NotFoundError, UsageError
from agentgym.plugins.bench.code.asserts import read_humaneval, read_mbpp
from agentgym.plugins.bench.code.contests import read_livecodebench
from agentgym.plugins.bench.code.outputs import read_humaneval_plus, read_mbpp_plus
from agentgym.plugins.bench.code.problems import BenchmarkProblem, read_lines
from agentgym.sandbox import Argv, Limits, Sandbox, SandboxConfig
from agentgym.sandbox.commands import Command, Program
from agentgym.scenarios.base import Environment, Scenario

SOURCE = (
    "the data set nuprl/MultiPL-E on Hugging Face (humaneval-js, humaneval-go, "
    "humaneval-rs, mbpp-js, mbpp-go, mbpp-rs), as JSON Lines"
)
LANGUAGES = {"js": "javascript", "go": "go", "go_test.go": "go", "rs": "rust"}
_TITLES = {"javascript": "JavaScript", "go": "Go", "rust": "Rust"}
_REQUEST = (
    "Complete this {title} function. Answer with the whole code, beginning with the "
    "given lines, in one code block.\n\n```{name}\n{prompt}```"
)
_GO_S, _OTHER_S = 30.0, 15.0
_COMMANDS: dict[str, tuple[str, Command]] = {
    "javascript": ("main.js", Program("main.js")),
    "rust": ("main.rs", Program("main.rs")),
    "go": ("main_test.go", Argv(("go", "test", "main_test.go"))),
}


@dataclass(frozen=True)
class JoinedProgram:
    """Accepts code if the program of this code and its tests succeeds.

    Attributes:
        stops: Texts at which the code is cut, if it starts with ``prefix``. The code
            after such a text does not belong to the function.
        prefix: Start of the code, which the model has to complete.
    """

    language: str
    tests: str
    stops: tuple[str, ...]
    prefix: str

    def __call__(self, sandbox: Sandbox, code: str) -> bool:
        """Return whether the program succeeds within 15 seconds (Go: 30 seconds)."""
        if code.startswith(self.prefix):
            completion = code[len(self.prefix) :]
            for stop in self.stops:
                completion = completion.partition(stop)[0]
            code = self.prefix + completion
        name, command = _COMMANDS[self.language]
        limit_s = _GO_S if self.language == "go" else _OTHER_S
        result = sandbox.run_sync(
            {name: f"{code}\n{self.tests}"}, command, timeout_s=limit_s
        )
        return result.checked().ok


def read_multipl_e(data: str) -> Iterator[BenchmarkProblem]:
    """Yield the problems of a file of MultiPL-E."""
    for row in read_lines(data, "MultiPL-E", SOURCE):
        prompt, name, short = (row.field(key) for key in ("prompt", "name", "language"))
        if short not in LANGUAGES:
            raise row.error(f"programs in {short!r} are not run; js, go and rs are")
        language = LANGUAGES[short]
        request = _REQUEST.format(title=_TITLES[language], name=language, prompt=prompt)
        stops = tuple(row.texts("stop_tokens"))
        yield BenchmarkProblem(
            id=name,
            family=f"multipl_e_{language}",
            instruction=request,
            prefix=prompt,
            entry_point="_".join(name.split("_")[2:]) or name,
            judge=JoinedProgram(language, row.field("tests"), stops, prompt),
        )


_LIMITS = Limits(memory_mb=4096, total_memory_mb=4096, output_bytes=8 << 20)
_HELD_OUT = 50
"""Percentage of problems in the test split, if the benchmark has no splits."""


class CodeBenchmark(Scenario):
    """Base class of benchmarks in which an answer is code."""

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
        """Return up to ``count`` problems of a split, in the seed's order."""
        found = [*self._splits.get(split, ())]
        if not found:
            raise UsageError(
                f"None of the {len(self._by_id)} problems of {self.name} is in the "
                f"split {split.value!r}. `agentgym eval --split all` measures those of "
                "every split; training needs some in train, validation and test."
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
        right = bool(code.strip()) and problem.judge(self.sandbox, code)
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
    """The benchmark LiveCodeBench, or only its contests from ``start`` to ``end``."""

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
        names = {judge.language for judge in judges if isinstance(judge, JoinedProgram)}
        return replace(super().sandbox_config(), languages=tuple(sorted(names)))
