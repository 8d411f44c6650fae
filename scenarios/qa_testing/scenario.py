"""QaTestingScenario: tasks to write tests that detect faults in code."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import ToolError
from agentgym.packs.coding import execution, functions, projects
from agentgym.packs.coding.environment import (
    ProjectScenario,
    ReadableProject,
)
from agentgym.packs.coding.execution import TIMEOUT_S, is_test_path, tests_of
from agentgym.packs.coding.families import ProjectFamily, ProjectScene, refer_to_module
from agentgym.packs.coding.functions import Point, Template
from agentgym.packs.coding.projects import Function, Module
from agentgym.packs.kit.environment import recorded
from agentgym.packs.kit.phrases import read_phrases
from agentgym.packs.kit.rewards import grade
from agentgym.packs.kit.tasks import Draft
from agentgym.sandbox import Sandbox, gives
from agentgym.sandbox.guest.plain import plain_text
from agentgym.scenarios.base import Environment, own_environment
from agentgym.scenarios.plan_reward import PROGRESS, SPARE_CALLS, Attempts, melted

_LONGEST = 300


class Case(NamedTuple):
    """One test: a call such as ``area_lamp(3, 4)``, with the value it must return."""

    call: str
    expected: Any

    @property
    def function(self) -> str:
        """Name of the function that is called."""
        return self.call.partition("(")[0]


def read_call(text: str, functions: Iterable[str]) -> str:
    """Check a function call, and return it in the format of :func:`ast.unparse`."""
    # Only literals: a test could else read the function's source, and so find mutants.
    wrong = f"{text[:60]!r} is not a call with plain values, as in add(2, 3)."
    if len(text) > _LONGEST:
        raise ToolError(wrong)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError(wrong) from None
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ToolError(wrong)
    if tree.func.id not in functions:
        raise ToolError(f"there is no function {tree.func.id} in the modules.")
    for value in (*tree.args, *(keyword.value for keyword in tree.keywords)):
        try:
            ast.literal_eval(value)
        except (ValueError, TypeError, RecursionError, MemoryError):
            raise ToolError(wrong) from None
    if any(keyword.arg is None for keyword in tree.keywords):
        raise ToolError(wrong)
    return ast.unparse(tree)


def read_value(text: str) -> Any:
    """Parse a literal, such as ``12`` or ``[1, 2]``."""
    try:
        value = ast.literal_eval(text.strip()) if len(text) <= _LONGEST else ...
        plain_text(value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ToolError(
            f"{text[:60]!r} is not a plain value, as 12 or [1, 2]."
        ) from None
    return value


def render_tests(module: str, cases: Sequence[Case]) -> str:
    """Return the source of a test file with the given tests of one module."""
    names = ", ".join(sorted({case.function for case in cases}))
    blocks = [f"from {module} import {names}"]
    for number, case in enumerate(cases, 1):
        blocks.append(
            f"def test_{case.function}_{number}():\n"
            f"    assert {case.call} == {case.expected!r}"
        )
    return "\n\n\n".join(blocks) + "\n"


_FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)
_MOST_CASES = 20


class TestingEnvironment(ReadableProject):
    """A small Python project with right code, to which the agent adds tests."""

    __test__ = False

    def __init__(self, files: Mapping[str, str], sandbox: Sandbox) -> None:
        super().__init__(files)
        self.cases: dict[str, list[Case]] = {}  # by module
        self._sandbox = sandbox
        self._modules = {
            name: path
            for path, text in files.items()
            if "/" in path and not is_test_path(path)
            for name in _FUNCTION.findall(text)
        }

    @recorded
    async def run_call(self, call: str) -> str:
        """Call a function and show its value."""
        text = self.call["call"] = read_call(call, self._modules)
        module = _dotted(self._modules[text.partition("(")[0]])
        script = f"from {module} import *\n\nprint(repr({text}))\n"
        files = {**self.workspace.files, "run_call.py": script}
        return await execution.run_script(self._sandbox, files, "run_call.py", ())

    @recorded
    def add_test(self, call: str, expected: str) -> str:
        """Add a test that a call gives a value."""
        text = self.call["call"] = read_call(call, self._modules)
        value = read_value(expected)
        self.call["expected"] = repr(value)
        path = self._modules[text.partition("(")[0]]
        if path not in self.files_read:
            self.forbid(f"read {path} before you test it.")
        cases = self.cases.setdefault(path, [])
        if any(case.call == text for case in cases):
            raise ToolError(f"{text} is tested already.")
        if sum(map(len, self.cases.values())) >= _MOST_CASES:
            raise ToolError(f"{_MOST_CASES} tests are enough.")
        cases.append(Case(text, value))
        self.workspace.files[tests_of(path)] = render_tests(_dotted(path), cases)
        return f"Added to {tests_of(path)}."

    @recorded
    async def run_tests(self) -> str:
        """Run all tests."""
        files = dict(self.workspace.files)
        return await execution.run_tests(self._sandbox, files, execution.TESTS)


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


ERROR = -0.04
VIOLATION = -0.2
WRONG_TEST = -0.15
_LOOKED = 0.2
_MOST_COUNTED = 2
_MOST_ERRORS = 6


def score(
    task: Task,
    environment: TestingEnvironment,
    trajectory: Trajectory,
    sandbox: Sandbox,
) -> Reward:
    """Score the tests that the agent added in an episode.

    In a success, the tests detect every mutant (version of the code with one fault),
    and all tests pass on the right code. It earns 1 minus a little for needless calls.
    With too many needless calls it is not a success, so testing everything does not
    pay.

    Without success, the detected mutants earn up to 0.36, and reading the module up to
    0.09. Each of at most two tests that fail on the right code costs 0.15.
    """
    attempts = Attempts.of(environment.books, trajectory)
    module, needed = task.goal["module"], [tool for tool, _ in task.goal["plan"]]
    over = max(0, len(attempts.tools) - len(needed) - SPARE_CALLS[task.level])
    wrong, killed = judge(task, environment.cases.get(module, []), sandbox)
    parts = {
        "killed": PROGRESS * (1 - _LOOKED) * killed * melted(over),
        "read": PROGRESS * _LOOKED * (module in environment.files_read) * melted(over),
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
    body, bodies = function.template.body, _faulty(function.template, split)
    points = function.template.points
    kills = [{b for b in bodies if _value(b, p) != _value(body, p)} for p in points]
    for size in range(1, len(points) + 1):
        for chosen in combinations(range(len(points)), size):
            if set().union(*(kills[place] for place in chosen)) == {*bodies}:
                calls = [points[place] for place in chosen]
                return [(function.call(p), functions.evaluate(body, p)) for p in calls]
    raise AssertionError(f"no points kill all mutants of {function.template.key}")


def _value(body: str, point: Point) -> str | None:
    """Return the ``repr`` of the value of a body; None if it raises."""
    try:
        return functions.evaluate(body, point)
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
        return score(task, own, trajectory, self.sandbox)
