"""Score a review by precision and recall: compare reports with planted defects."""

from collections.abc import Iterable

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.plugins.packs.code_review.environment import ReviewBooks
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
FALSE_REPORT = -0.15
_MOST_COUNTED = 2
_MOST_ERRORS = 6
_LOOK = 0.5


def score(task: Task, books: ReviewBooks, trajectory: Trajectory) -> Reward:
    """Score a finished review.

    In a success, the agent reported every planted bug and security problem by file,
    line and kind, and reported nothing else. It also read or linted all requested
    files, broke no rule, and made few needless calls. A success earns 1, minus a little
    for each needless call.

    Without success, let ``n`` be the number of calls in the shortest solution. F1 (the
    harmonic mean of precision and recall) then earns up to 0.45 * (1 - 1/n). Reading or
    linting all requested files earns up to 0.225 / n. Each false report costs 0.15, so
    reporting every line does not pay.
    """
    attempts = Attempts.of(books, trajectory)
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
    plan = task.goal["plan"]
    defects = {tuple(defect) for defect in task.goal["defects"]}
    reports = set(books.reports)
    hits, false = len(defects & reports), len(reports - defects)
    looked = set(task.goal["look"]) <= books.read | books.linted
    spare = SPARE_CALLS[task.level]
    over = max(0, len(attempts.tools) - len(plan) - spare)
    right_tool = tools_called((tool for tool, _ in plan), attempts.tools) / len(plan)
    right_call = (hits + looked) / (len(defects) + 1)
    precise = hits == len(defects) and not false
    if precise and looked and not attempts.violations and not over:
        parts = success_parts(attempts, len(plan), ERROR)
        return Reward(sum(parts.values()), True, parts, 1.0, 1.0)
    credit = PROGRESS * (1.0 - 1.0 / len(plan)) * f1(defects, reports)
    parts = {
        "found": credit * melted(over),
        "looked": PROGRESS / len(plan) * _LOOK * looked * melted(over),
        "false reports": FALSE_REPORT * false,
        "errors": ERROR * min(len(attempts.failed), _MOST_ERRORS),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
    }
    value = sum(parts.values())
    if value < -1.0:
        parts["limit"] = -1.0 - value
    return Reward(max(-1.0, value), False, parts, right_tool, right_call)


def f1(defects: Iterable[object], reports: Iterable[object]) -> float:
    """Return F1, the harmonic mean of precision and recall; 0 if no report is right."""
    planted, made = set(defects), set(reports)
    hits = len(planted & made)
    return 2 * hits / (len(planted) + len(made)) if hits else 0.0
