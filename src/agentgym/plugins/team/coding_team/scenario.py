"""CodingTeamScenario: four roles solve small programming problems as a team."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import UsageError
from agentgym.packs.coding import functions
from agentgym.packs.coding.functions import Template
from agentgym.packs.coding.names import Names, names_for
from agentgym.packs.coding.projects import Module, build
from agentgym.packs.kit.code_rewards.static_checks import EXTRA, require_checks
from agentgym.packs.kit.phrases import read_phrases, request
from agentgym.plugins.team.coding_team import rewards
from agentgym.plugins.team.coding_team.environment import WRITING, TeamEnvironment
from agentgym.scenarios.base import Environment, Scenario, own_environment

PHRASES = read_phrases(Path(__file__).parent / "wording")

_MANY = 4
"""Number of functions of a module that is long enough to need a review."""
_FAULTS = ("operator", "condition", "value")

Call = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """A programming problem with its right solution."""

    module: Module
    source: str
    instruction: str


@dataclass(frozen=True)
class TeamFamily:
    """A kind of task; the generator's first draft decides which roles have to work.

    Attributes:
        level: Difficulty: 3 if the review must find a serious problem, else 2.
        first: Function that returns a wrong first draft; None if the first draft is
            right.
        is_found: Whether the review finds the fault of the first draft, so that no test
            has to run on it.
    """

    name: str
    level: int
    functions: int
    first: Callable[[Random, Split, Problem], str] | None = None
    is_found: bool = False

    def plan(self, module: Module) -> list[Call]:
        """Return the calls of the shortest solution, except those of the generator."""
        review = _calls(
            ("hand_over", {"to": "reviewer"}),
            ("lint", {"path": module.path}),
            ("check_security", {"path": module.path}),
        )
        test = _calls(
            ("hand_over", {"to": "executor"}), ("run_tests", {"path": module.test_path})
        )
        write = _calls(("hand_over", {"to": "generator"}))
        check = review if self.functions >= _MANY else []
        if self.first is None:
            first: list[Call] = []
        else:
            first = [*write, *(check if self.is_found else [*check, *test])]
        return [*first, *write, *check, *test, *_calls(("hand_over", {"to": "finish"}))]


def _calls(*calls: tuple[str, Call]) -> list[Call]:
    return [{"tool": tool, "args": args} for tool, args in calls]


def _faulty(rng: Random, split: Split, problem: Problem) -> str:
    """Return the right source with a fault in the body of one function."""
    pairs = [pair for kind in _FAULTS for pair in functions.with_fault(kind, split)]
    made = []
    for function in problem.module.functions:
        right = function.fill(function.template.body, problem.module.constant)
        for template, fault in pairs:
            wrong = function.fill(fault.body, problem.module.constant)
            if template is function.template and problem.source.count(right) == 1:
                made.append(problem.source.replace(right, wrong))
    return rng.choice(made)


def _misspelled(rng: Random, split: Split, problem: Problem) -> str:
    """Return the right source with one parameter misspelled: an undefined name."""
    function = rng.choice([f for f in problem.module.functions if f.parameters])
    right = function.fill(function.template.body, problem.module.constant)
    name = function.parameters[0]
    return problem.source.replace(right, right.replace(name, f"{name}_", 1), 1)


def _insecure(rng: Random, split: Split, problem: Problem) -> str:
    """Return the right source with a weak hash, a serious problem for bandit."""
    word = problem.module.name
    line = f'TAG = hashlib.md5(b"{word}").hexdigest()\n'
    head, _, rest = problem.source.partition("\n")
    return f"import hashlib\n\n{head}\n{line}{rest}"


FAMILIES = (
    TeamFamily("direct", 2, 1),
    TeamFamily("wrong_at_first", 2, 1, _faulty),
    TeamFamily("reviewed", 2, _MANY),
    TeamFamily("misspelled_at_first", 3, _MANY, _misspelled, is_found=True),
    TeamFamily("insecure_at_first", 3, _MANY, _insecure, is_found=True),
)


def make_task(family: TeamFamily, split: Split, seed: int, index: int) -> Task:
    """Return the ``index``-th task of a family, the same for equal arguments."""
    identity = f"{split}/{family.name}/{seed}/{index}"
    rng = Random(identity)
    problem = _problem(rng, family, split)
    module = problem.module
    drafts = [{module.path: problem.source}]
    if family.first is not None:
        drafts.insert(0, {module.path: family.first(rng, split, problem)})
    return Task(
        id=identity,
        split=split,
        seed=seed,
        family=family.name,
        level=family.level,
        instruction=problem.instruction,
        initial_state={
            "files": {module.test_path: module.tests("all")},
            "drafts": drafts,
            "target": module.path,
        },
        goal={
            "plan": family.plan(module),
            "hidden": {module.path: module.values()},
        },
    )


def _problem(rng: Random, family: TeamFamily, split: Split) -> Problem:
    names = names_for(split, rng)
    templates = _templates(rng, family, split)
    project = build(rng, names, templates=templates, docs=True)
    module = project.modules[0]
    if len(module.functions) > family.functions:
        module = Module(
            module.package,
            module.name,
            module.constant,
            module.value,
            module.functions[: family.functions],
        )
    return Problem(module, module.source(docs=True), _asked(rng, split, module, names))


def _templates(rng: Random, family: TeamFamily, split: Split) -> Sequence[Template]:
    """Return templates for a module's functions; one with faults for a wrong draft."""
    if family.first is _faulty:
        kind = rng.choice(_FAULTS)
        return [rng.choice(functions.with_fault(kind, split))[0]]
    return rng.sample(functions.TEMPLATES, family.functions)


def _asked(rng: Random, split: Split, module: Module, names: Names) -> str:
    slots = {"file": module.path, "tests": module.test_path}
    shown = [function.name for function in module.functions]
    if len(shown) > 1:
        slots["names"] = f"{', '.join(shown[:-1])} and {shown[-1]}"
        return request(rng, PHRASES["many"], split, slots)
    function = module.functions[0]
    doc = function.fill(function.template.doc, module.constant)
    slots |= {"name": function.name, "doc": doc[0].lower() + doc[1:].rstrip(".")}
    return request(rng, PHRASES["one"], split, slots)


SYSTEM_PROMPT = (
    "You are a coding team. Hand over to the generator, which writes the code; to the "
    "reviewer, who checks code that is not simple with lint and check_security; to the "
    "executor, who runs the tests; then finish."
)
GENERATORS = ("script", "policy")


class CodingTeamScenario(Scenario):
    """Tasks for a team: a supervisor, a generator, a reviewer and an executor.

    Args:
        generator: Writer of the code. With ``script``, a script writes it, and the
            policy learns the other roles. With ``policy``, the policy also writes it.

    Raises:
        UsageError: ``generator`` is not one of these two.
    """

    name: ClassVar[str] = "coding_team"
    description: ClassVar[str] = (
        "Lead a coding team: route, review and test the code of a generator."
    )
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = (
        "intermediate"
    )
    estimated_time: ClassVar[str] = "about 20 minutes on 2 cores"
    reward_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    max_turns: ClassVar[int] = 10
    splits: ClassVar[tuple[Split, ...]] = tuple(Split)
    options: ClassVar[tuple[str, ...]] = ("generator",)
    extras: ClassVar[tuple[str, ...]] = (EXTRA,)
    agents: ClassVar[dict[str, str]] = {
        "langchain": "agentgym.plugins.team.coding_team.graph:make_team"
    }

    def __init__(self, generator: str = "script") -> None:
        if generator not in GENERATORS:
            known = " or ".join(GENERATORS)
            raise UsageError(
                f"The generator of coding_team is {known}, not {generator!r}."
            )
        self._is_scripted = generator == "script"

    def system_prompt(self) -> str:
        """Return the system prompt for a single agent that has all roles."""
        return SYSTEM_PROMPT

    def tools(self) -> list[ToolSpec]:
        """Return all roles' tools, except those that write code if a script writes."""
        found = tool_specs(TeamEnvironment)
        if not self._is_scripted:
            return found
        return [spec for spec in found if spec.name not in WRITING]

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return ``count`` tasks, from each kind of task in turn."""
        require_checks("The scenario coding_team")
        mixed = Random(0).sample(FAMILIES, len(FAMILIES))
        return [
            make_task(mixed[i % len(mixed)], split, seed, i // len(mixed))
            for i in range(count)
        ]

    def held_out(self, seed: int, count: int) -> dict[str, list[Task]]:
        """Return ``held-out`` tasks, and fewer ``out-of-vocabulary`` ones."""
        return {
            "held-out": self.tasks(Split.TEST, seed, count),
            "out-of-vocabulary": self.tasks(
                Split.OUT_OF_VOCABULARY, seed, max(1, count // 6)
            ),
        }

    def create_environment(self, task: Task) -> TeamEnvironment:
        """Return a new environment whose project only has the tests of the task."""
        state = task.initial_state
        return TeamEnvironment(
            state["files"],
            self.sandbox,
            target=state["target"],
            drafts=state["drafts"] if self._is_scripted else None,
        )

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode: by its calls if a script writes code, else by its code."""
        own = own_environment(TeamEnvironment, environment)
        if self._is_scripted:
            return rewards.score_routing(task, own, trajectory)
        return rewards.score_outcome(task, own, trajectory, self.sandbox)

    def judge_changes(self, task: Task, changes: Mapping[str, str]) -> Reward | None:
        """Return the reward for changed files; None if a script writes the code."""
        if self._is_scripted:
            return None
        files = {**task.initial_state["files"], **changes}
        right = rewards.is_right(task, files, self.sandbox)
        value = rewards.CORRECT if right else 0.0
        return Reward(value, right, {"correct": value})

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return the shortest solution's calls; None if the policy writes the code."""
        return rewards.needed(task) if self._is_scripted else None

    def notes(self) -> list[str]:
        """Return a note on the trained roles; empty if the policy writes the code."""
        if not self._is_scripted:
            return []
        note = (
            "A script plays the generator: the supervisor's routing and the tool calls "
            "of the reviewer and the executor are trained. `coding_team?generator="
            "policy` lets the model write the code, which is too hard for the shipped "
            "policy."
        )
        return [note]
