"""Score tests: they must pass on right code, and fail on code with a fault."""

from collections.abc import Sequence

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.plugins.packs.coding.execution import TIMEOUT_S, AnySandbox
from agentgym.plugins.packs.qa_testing.cases import Case
from agentgym.plugins.packs.qa_testing.environment import TestingBooks
from agentgym.sandbox import gives
from agentgym.scenarios.plan_reward import (
    NO_CALL,
    PROGRESS,
    SPARE_CALLS,
    Attempts,
    melted,
    success_parts,
    tools_called,
)

ERROR = -0.04
VIOLATION = -0.2
WRONG_TEST = -0.15
_LOOKED = 0.2
_MOST_COUNTED = 2
_MOST_ERRORS = 6


def score(
    task: Task, books: TestingBooks, trajectory: Trajectory, sandbox: AnySandbox
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
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
    plan, module = task.goal["plan"], task.goal["module"]
    over = max(0, len(attempts.tools) - len(plan) - SPARE_CALLS[task.level])
    cases = books.cases.get(module, [])
    wrong, killed = judge(task, cases, sandbox)
    right_tool = tools_called((tool for tool, _ in plan), attempts.tools) / len(plan)
    if killed == 1.0 and not wrong and not attempts.violations and not over:
        parts = success_parts(attempts, len(plan), ERROR)
        return Reward(sum(parts.values()), True, parts, 1.0, 1.0)
    parts = {
        "killed": PROGRESS * (1 - _LOOKED) * killed * melted(over),
        "read": PROGRESS * _LOOKED * (module in books.read) * melted(over),
        "wrong tests": WRONG_TEST * min(wrong, _MOST_COUNTED),
        "errors": ERROR * min(len(attempts.failed), _MOST_ERRORS),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
    }
    return Reward(sum(parts.values()), False, parts, right_tool, killed)


def judge(task: Task, cases: Sequence[Case], sandbox: AnySandbox) -> tuple[int, float]:
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
