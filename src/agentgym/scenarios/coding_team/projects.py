"""Create tasks for the team: small problems, and the code of a scripted generator.

The tasks train the supervisor, the reviewer and the executor. A script plays the
generator, so that a policy that cannot write code can learn the other roles. In each
round, the script writes a draft: the code of the whole module. The first draft decides
which roles have to work: it may be right, wrong, long enough to need a review, or have
a serious security problem.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.scenarios.coding import functions
from agentgym.scenarios.coding.functions import Template
from agentgym.scenarios.coding.invented import names_for
from agentgym.scenarios.coding.names import Names
from agentgym.scenarios.coding.projects import Module, build
from agentgym.scenarios.coding_team.wording import PHRASES
from agentgym.scenarios.wording.grammar import request

_MANY = 4
"""Number of functions of a module that is long enough to need a review."""
_FAULTS = ("operator", "condition", "value")

Call = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """A programming problem with its right solution.

    Attributes:
        module: The module that the team has to write.
        source: The right source of the module.
        instruction: The user's request.
    """

    module: Module
    source: str
    instruction: str


@dataclass(frozen=True)
class TeamFamily:
    """A kind of task; the generator's first draft decides which roles have to work.

    Attributes:
        name: Name of the family.
        level: Difficulty: 3 if the review must find a serious problem, else 2.
        functions: Number of functions in the module.
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
    """Return templates for the module's functions.

    If the first draft gets a fault, return one template that has faults for ``split``.
    """
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
