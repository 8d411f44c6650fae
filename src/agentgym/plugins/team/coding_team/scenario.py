"""CodingTeamScenario: four roles solve small programming problems as a team."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import UsageError
from agentgym.packs.coding import functions
from agentgym.packs.coding.execution import repaired
from agentgym.packs.coding.functions import Template
from agentgym.packs.coding.names import names_for
from agentgym.packs.coding.projects import Module, build
from agentgym.packs.kit.code_rewards.parts import is_test_file
from agentgym.packs.kit.code_rewards.static_checks import EXTRA, require_checks
from agentgym.packs.kit.phrases import read_phrases, request
from agentgym.packs.kit.rewards import grade, in_order, not_made
from agentgym.plugins.team.coding_team.environment import WRITING, TeamEnvironment
from agentgym.sandbox import Sandbox
from agentgym.scenarios.base import Environment, Scenario, own_environment
from agentgym.scenarios.plan_reward import (
    NEXT_TOOL,
    NO_CALL,
    PROGRESS,
    Attempts,
    ReceivedCall,
    melted,
)

PHRASES = read_phrases(Path(__file__).parent / "wording")

_MANY = 4
"""Number of functions of a module that is long enough to need a review."""
_FAULTS = ("operator", "condition", "value")

Call = dict[str, Any]


@dataclass(frozen=True)
class TeamFamily:
    """A kind of task; the generator's first draft decides which roles have to work.

    Attributes:
        level: Difficulty: 3 if the review must find a serious problem, else 2.
        first: Returns a wrong first draft; None if the first draft is
            right.
        is_found: Whether the review finds the fault of the first draft, so that no test
            has to run on it.
    """

    name: str
    level: int
    functions: int
    first: Callable[[Random, Split, Module], str] | None = None
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


def _faulty(rng: Random, split: Split, module: Module) -> str:
    """Return the right source with a fault in the body of one function."""
    pairs = [pair for kind in _FAULTS for pair in functions.with_fault(kind, split)]
    source = module.source(docs=True)
    made = []
    for function in module.functions:
        right = function.fill(function.template.body, module.constant)
        for template, fault in pairs:
            wrong = function.fill(fault.body, module.constant)
            if template is function.template and source.count(right) == 1:
                made.append(source.replace(right, wrong))
    return rng.choice(made)


def _misspelled(rng: Random, split: Split, module: Module) -> str:
    """Return the right source with one parameter misspelled: an undefined name."""
    function = rng.choice([f for f in module.functions if f.parameters])
    right = function.fill(function.template.body, module.constant)
    name = function.parameters[0]
    wrong = right.replace(name, f"{name}_", 1)
    return module.source(docs=True).replace(right, wrong, 1)


def _insecure(rng: Random, split: Split, module: Module) -> str:
    """Return the right source with a weak hash, a serious problem for bandit."""
    line = f'TAG = hashlib.md5(b"{module.name}").hexdigest()\n'
    head, _, rest = module.source(docs=True).partition("\n")
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
    names = names_for(split, rng)
    templates = _templates(rng, family, split)
    [module, *_] = build(rng, names, templates=templates, docs=True).modules
    module = replace(module, functions=module.functions[: family.functions])
    instruction = _asked(rng, split, module)
    drafts = [{module.path: module.source(docs=True)}]
    if family.first is not None:
        drafts.insert(0, {module.path: family.first(rng, split, module)})
    return Task(
        id=identity,
        split=split,
        seed=seed,
        family=family.name,
        level=family.level,
        instruction=instruction,
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


def _templates(rng: Random, family: TeamFamily, split: Split) -> Sequence[Template]:
    """Return templates for a module's functions; one with faults for a wrong draft."""
    if family.first is _faulty:
        kind = rng.choice(_FAULTS)
        return [rng.choice(functions.with_fault(kind, split))[0]]
    return rng.sample(functions.TEMPLATES, family.functions)


def _asked(rng: Random, split: Split, module: Module) -> str:
    slots = {"file": module.path, "tests": module.test_path}
    shown = [function.name for function in module.functions]
    if len(shown) > 1:
        slots["names"] = f"{', '.join(shown[:-1])} and {shown[-1]}"
        return request(rng, PHRASES["many"], split, slots)
    function = module.functions[0]
    doc = function.fill(function.template.doc, module.constant)
    slots |= {"name": function.name, "doc": doc[0].lower() + doc[1:].rstrip(".")}
    return request(rng, PHRASES["one"], split, slots)


ERROR = -0.04
VIOLATION = -0.1
FALLBACK = -0.05
SPARE_CALLS = 3
"""Number of needless calls that a success may contain."""
CORRECT, FINISHED = 0.7, 0.3
"""If the policy writes the code: rewards for right code, and for finishing then."""
_MOST_COUNTED = 4


def needed(task: Task) -> list[NeededCall]:
    """Return the calls of the task's shortest solution."""
    return [
        NeededCall(step["tool"], step["args"], _others(step["tool"]))
        for step in task.goal["plan"]
    ]


def _others(tool: str) -> tuple[dict[str, str], ...]:
    """Return other right arguments of a call; ``run_tests`` may also run all tests."""
    return ({"path": ""}, {"path": "tests"}) if tool == "run_tests" else ()


def score_routing(
    task: Task, environment: TeamEnvironment, trajectory: Trajectory
) -> Reward:
    """Score an episode in which a script writes the code, by the calls of the models.

    In a success, the models made all calls of the shortest solution in order, with at
    most ``SPARE_CALLS`` needless calls. They broke no rule, and the graph's own code
    never had to replace a model. A success earns at least 0.9.
    """
    plan = needed(task)
    attempts = Attempts.of(environment.books, trajectory)
    made = in_order(plan, attempts.done, _matches)
    over = len(attempts.tools) - made - SPARE_CALLS
    is_clean = not attempts.violations and not environment.fallbacks
    credit = float(made)
    if made < len(plan) and plan[made].tool in attempts.failed:
        credit += NEXT_TOOL
    parts = {
        "progress": PROGRESS / len(plan) * credit * melted(over),
        "errors": ERROR * min(len(attempts.failed), _MOST_COUNTED),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
        "fallbacks": FALLBACK * min(len(environment.fallbacks), _MOST_COUNTED),
    }
    right = len(plan) - len(not_made(plan, attempts.done, _matches))
    return grade(
        attempts,
        [need.tool for need in plan],
        parts,
        success=made == len(plan) and is_clean and over <= 0,
        arguments=right / len(plan),
        error=ERROR,
        spare=SPARE_CALLS,
    )


def score_outcome(
    task: Task,
    environment: TeamEnvironment,
    trajectory: Trajectory,
    sandbox: Sandbox,
) -> Reward:
    """Score an episode in which the policy writes the code, by this code.

    Right code earns ``CORRECT``, and handing over to ``finish`` then earns ``FINISHED``
    in addition. Errors, broken rules, and turns in which the graph's own code replaced
    a model each cost a little.
    """
    attempts = Attempts.of(environment.books, trajectory)
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL})
    correct = is_right(task, environment.workspace.files, sandbox)
    finished = ReceivedCall("hand_over", {"to": "finish"}) in attempts.done
    is_clean = not attempts.violations and not environment.fallbacks
    parts = {
        "correct": CORRECT if correct else 0.0,
        "finished": FINISHED if correct and finished else 0.0,
        "errors": ERROR * min(len(attempts.failed), 2),
        "rules": ERROR * min(attempts.violations, 2),
        "fallbacks": ERROR * min(len(environment.fallbacks), 2),
    }
    return Reward(sum(parts.values()), correct and finished and is_clean, parts)


def is_right(task: Task, files: Mapping[str, str], sandbox: Sandbox) -> bool:
    """Return whether the code gives the right values of hidden expressions."""
    code = {path: text for path, text in files.items() if not is_test_file(path)}
    hidden = task.goal["hidden"]
    return all(path in code for path in hidden) and repaired(sandbox, code, hidden)


def _matches(need: NeededCall, call: ReceivedCall) -> bool:
    return need.tool == call.tool and call.args in (need.arguments, *need.others)


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
            return score_routing(task, own, trajectory)
        return score_outcome(task, own, trajectory, self.sandbox)

    def judge_changes(self, task: Task, changes: Mapping[str, str]) -> Reward | None:
        """Return the reward for changed files; None if a script writes the code."""
        if self._is_scripted:
            return None
        files = {**task.initial_state["files"], **changes}
        right = is_right(task, files, self.sandbox)
        value = CORRECT if right else 0.0
        return Reward(value, right, {"correct": value})

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return the shortest solution's calls; None if the policy writes the code."""
        return needed(task) if self._is_scripted else None

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
