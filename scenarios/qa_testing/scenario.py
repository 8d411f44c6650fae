"""QaTestingScenario: tasks to write tests that detect faults in code."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from random import Random

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.packs.coding import functions, projects
from agentgym.packs.coding.base import ProjectScenario
from agentgym.packs.coding.execution import TIMEOUT_S
from agentgym.packs.coding.families import ProjectFamily, ProjectScene
from agentgym.packs.coding.functions import Point, Template
from agentgym.packs.coding.projects import Function, Module
from agentgym.packs.coding.references import refer_to_module
from agentgym.packs.kit.phrases import read_phrases
from agentgym.packs.kit.rewards import grade
from agentgym.packs.kit.tasks import Draft
from agentgym.sandbox import Sandbox, gives
from agentgym.scenarios.base import Environment, own_environment
from agentgym.scenarios.plan_reward import PROGRESS, SPARE_CALLS, Attempts, melted

from .environment import Case, TestingBooks, TestingEnvironment

ERROR = -0.04
VIOLATION = -0.2
WRONG_TEST = -0.15
_LOOKED = 0.2
_MOST_COUNTED = 2
_MOST_ERRORS = 6


def score(
    task: Task, books: TestingBooks, trajectory: Trajectory, sandbox: Sandbox
) -> Reward:
    """Score the tests that the agent added in an episode.

    In a success, the tests detect every mutant (version of the code with one fault),
    and all tests pass on the right code. It earns 1 minus a little for needless calls.
    With too many needless calls it is not a success, so testing everything does not
    pay.

    Without success, the detected mutants earn up to 0.36, and reading the module up to
    0.09. Each of at most two tests that fail on the right code costs 0.15.
    """
    attempts = Attempts.of(books, trajectory)
    module, needed = task.goal["module"], [tool for tool, _ in task.goal["plan"]]
    over = max(0, len(attempts.tools) - len(needed) - SPARE_CALLS[task.level])
    wrong, killed = judge(task, books.cases.get(module, []), sandbox)
    parts = {
        "killed": PROGRESS * (1 - _LOOKED) * killed * melted(over),
        "read": PROGRESS * _LOOKED * (module in books.read) * melted(over),
        "wrong tests": WRONG_TEST * min(wrong, _MOST_COUNTED),
        "errors": ERROR * min(len(attempts.failed), _MOST_ERRORS),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
    }
    found_all = killed == 1.0 and not wrong
    return grade(
        attempts,
        needed,
        parts,
        success=found_all and not attempts.violations and not over,
        arguments=killed,
        error=ERROR,
    )


def judge(task: Task, cases: Sequence[Case], sandbox: Sandbox) -> tuple[int, float]:
    """Return how many tests fail on the right code, and the share of detected mutants.

    A test detects a mutant (code with one fault) if it passes on the right code, and
    the mutant returns another value. All calls run together in the sandbox, and are
    compared outside of it.
    """
    if not cases:
        return 0, 0.0
    start: dict[str, str] = task.initial_state["files"]
    module = task.goal["module"]
    every = [(name, text) for name, ts in task.goal["mutants"].items() for text in ts]
    paths = {f"mutant_{number}.py": each for number, each in enumerate(every)}
    files = {**start, **{path: text for path, (_, text) in paths.items()}}
    asked = {module: {case.call: case.expected for case in cases}}
    for path, (name, _) in paths.items():
        own = {case.call: case.expected for case in cases if case.function == name}
        if own:
            asked[path] = own
    found = gives(sandbox, files, asked, timeout_s=TIMEOUT_S).wrong
    failing = {c.call for c in cases if f"{module}: {c.call}" in found}
    killed = sum(
        any(
            f"{path}: {case.call}" in found
            for case in cases
            if case.function == name and case.call not in failing
        )
        for path, (name, _) in paths.items()
    )
    return len(failing), killed / len(every)


PHRASES = read_phrases(Path(__file__).parent / "wording")

_HARD = ("over", "under", "enough", "within", "same", "both", "either")
"""Templates whose mutants return wrong values only for arguments at a boundary."""


def _plain(rng: Random) -> Template:
    """Return a random template whose mutants are wrong for nearly all arguments."""
    return rng.choice([t for t in _usable() if t.key not in _HARD])


def _usable() -> list[Template]:
    return [t for t in functions.TEMPLATES if t.faults and not t.uses_constant]


def _test_function(scene: ProjectScene) -> Draft:
    """Create a task to test one named function."""
    return _drafted(scene, _plain(scene.rng))


def _test_module(scene: ProjectScene) -> Draft:
    """Create a task to test both functions of a module."""
    first = _plain(scene.rng)
    while (second := _plain(scene.rng)) is first:
        pass
    return _drafted(scene, first, second)


def _test_boundary(scene: ProjectScene) -> Draft:
    """Create a task to test a function whose mutants are wrong only at a boundary."""
    return _drafted(scene, scene.rng.choice([t for t in _usable() if t.key in _HARD]))


def _drafted(scene: ProjectScene, *templates: Template) -> Draft:
    """Return a task to test a module's functions that are made from ``templates``."""
    split = scene.split
    project = projects.build(scene.rng, scene.names, templates=templates)
    module = project.modules[0]
    tested = [f for f in module.functions if f.template in templates]
    slots = {"file": refer_to_module(scene, module)}
    if len(templates) == 1:
        slots["name"] = tested[0].name
    plan: list[list[object]] = [["read_file", {"path": module.path}]]
    for function in tested:
        for call, value in _killing(function, split):
            plan.append(["run_call", {"call": call}])
            plan.append(["add_test", {"call": call, "expected": value}])
    source = project.files[module.path]
    # Sources of the module with one fault in a function, by the function's name.
    mutants = {f.name: _mutants(source, module, f, split) for f in tested}
    return Draft(
        scene.ask(**slots),
        {"files": {p: t for p, t in project.files.items() if p != module.test_path}},
        {"module": module.path, "mutants": mutants, "plan": plan},
    )


def _faulty(template: Template, split: Split) -> list[str]:
    """Return the template's wrong bodies that tasks of ``split`` use."""
    wanted = functions.with_defects(split)
    return [fault.body for fault in template.faults if fault.split is wanted]


def _mutants(
    source: str, module: Module, function: Function, split: Split
) -> list[str]:
    """Return the mutants for ``split``: the module's source with each fault once."""
    head, mark, rest = source.partition(function.signature())
    right = function.fill(function.template.body, module.constant)
    return [
        head + mark + rest.replace(right, function.fill(body, module.constant), 1)
        for body in _faulty(function.template, split)
    ]


def _killing(function: Function, split: Split) -> list[tuple[str, str]]:
    """Return the fewest calls that together detect every mutant, with their values."""
    template = function.template
    bodies = _faulty(template, split)
    kills = {
        point: {body for body in bodies if _value(body, point) != right}
        for point in _points(template)
        if (right := _value(template.body, point)) is not None
    }
    for size in range(1, len(kills) + 1):
        for chosen in combinations(kills, size):
            if set().union(*(kills[point] for point in chosen)) == {*bodies}:
                return [
                    (_call(function, point), _value(template.body, point) or "")
                    for point in chosen
                ]
    raise AssertionError(f"no points kill all mutants of {template.key}")


def _points(template: Template) -> dict[str, Point]:
    return {repr(point): point for point in template.points}


def _call(function: Function, point: str) -> str:
    arguments = ", ".join(map(repr, _points(function.template)[point]))
    return f"{function.name}({arguments})"


def _value(body: str, point: str) -> str | None:
    """Return the ``repr`` of a body's value for the arguments ``point``.

    None if it raises.
    """
    expression = body.removeprefix("return ").format(a="a", b="b")
    names = dict(zip("ab", eval(point), strict=False))  # our own templates
    try:
        return repr(eval(expression, {}, names))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


FAMILIES = (
    ProjectFamily("test_function", 1, PHRASES["function"], _test_function),
    ProjectFamily("test_module", 2, PHRASES["module"], _test_module),
    ProjectFamily("test_boundary", 3, PHRASES["function"], _test_boundary),
)

SYSTEM_PROMPT = (
    "You are a tester in a small Python project. The code is right. Use the tools, "
    "then answer in a few words. Rules: read a module before you test it; run a call "
    "to learn its value, then add it as a test; choose arguments for which wrong code "
    "would give another value."
)


class QaTestingScenario(ProjectScenario):
    """Tasks to write tests for functions of generated Python packages."""

    name = "qa_testing"
    description = "Write tests that kill mutants of Python code."
    difficulty = "intermediate"
    estimated_time = "10 to 20 minutes on 2 cores"
    max_turns = 12
    prompt = SYSTEM_PROMPT
    environment = TestingEnvironment
    families = FAMILIES
    by_outcome = frozenset({"call", "expected"})

    def create_environment(self, task: Task) -> TestingEnvironment:
        """Return a new environment with the project that the task asks to test."""
        return TestingEnvironment(task.initial_state["files"], self.sandbox)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode by the agent's tests; see :func:`score`."""
        own = own_environment(TestingEnvironment, environment)
        return score(task, own.books, trajectory, self.sandbox)
