"""Score an episode: by the final database, or without success by its progress."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.scenarios.books import ReceivedCall
from agentgym.scenarios.plan_reward import (
    DAMAGE,
    NEXT_TOOL,
    NO_CALL,
    PROGRESS,
    SPARE_CALLS,
    Attempts,
    is_guessed,
    melted,
    success_parts,
    tools_called,
)

from .database import expected
from .environment import SupportEnvironment
from .story import SupportStep

ERROR = -0.02
REPEAT = -0.02
VIOLATION = -0.1
_MOST_ERRORS = 4
_MOST_VIOLATIONS = 2


def score(
    task: Task, environment: SupportEnvironment, trajectory: Trajectory
) -> Reward:
    """Score a finished episode.

    In a success, the database has the expected rows, and the agent broke no rule. If
    the task is to look something up or to refuse, it also made every call of the
    shortest solution. It is not a success if the agent reached the goal by trying
    everything (:func:`is_guessed`). A success earns 1 minus a little for needless
    calls, at least 0.5.

    Without success, the calls of the shortest solution share 0.45 equally: each of them
    that the agent made, in any order, earns its share. For the first that it did not
    make, a call of the right tool earns 0.4 of a share. Many needless calls reduce
    these earnings to 0.
    """
    attempts = Attempts.of(environment.books, trajectory)
    plan = _plan(task, attempts.done)
    missing = _missing(plan, attempts.done)
    made = len(plan) - len(missing)
    spare = SPARE_CALLS[task.level]
    tools = [tool.spec.name for tool in environment.tools()]
    state = environment.snapshot()
    success = (
        state == task.goal["state"]
        and (not missing or not task.goal["every_step"])
        and not attempts.violations
        and not is_guessed(attempts, [step.tool for step in plan], tools, spare)
    )
    if success:
        parts = success_parts(attempts, len(plan), ERROR, spare)
        return Reward(sum(parts.values()), True, parts, 1.0, 1.0)
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
    credit = PROGRESS / len(plan) * (made + _next_tool(plan, missing, attempts))
    needless = len(attempts.tools) - made - spare
    damaged = _damaged(task, state)
    parts = {
        "progress": credit * melted(needless),
        "errors": ERROR * min(len(attempts.failed), _MOST_ERRORS),
        "repeats": REPEAT * min(_repeated(attempts.done), _MOST_ERRORS),
        "rules": VIOLATION * min(attempts.violations, _MOST_VIOLATIONS),
        "damage": DAMAGE if damaged else 0.0,
    }
    return Reward(
        sum(parts.values()),
        False,
        parts,
        tools_called((step.tool for step in plan), attempts.tools) / len(plan),
        made / len(plan),
    )


def matches(step: SupportStep, call: ReceivedCall) -> bool:
    """Return whether a call has the tool and the arguments that a step requires."""
    return step.tool == call.tool and all(
        _same(call.args[name], value) for name, value in step.args.items()
    )


def _repeated(done: Sequence[ReceivedCall]) -> int:
    """Count calls that repeat an earlier call with the same arguments."""
    return sum(call in done[:index] for index, call in enumerate(done))


def _plan(task: Task, done: Sequence[ReceivedCall]) -> list[SupportStep]:
    """Return the shortest solution's calls, adapted to the calls that were made."""
    # list_orders shows the same fields as get_order.
    owners = {number: owner for number, owner, *_ in task.initial_state["orders"]}
    plan = []
    for step in map(SupportStep.from_json, task.goal["plan"]):
        if step.tool == "get_order" and not _made(step, done):
            owner = owners.get(step.args["order_id"])
            listed = SupportStep("list_orders", {"customer_id": owner}, step.request)
            step = listed if _made(listed, done) else step
        plan.append(step)
    return plan


def _made(step: SupportStep, done: Sequence[ReceivedCall]) -> bool:
    return any(matches(step, call) for call in done)


def _missing(
    plan: Sequence[SupportStep], done: Sequence[ReceivedCall]
) -> list[SupportStep]:
    """Return the steps of the shortest solution that the agent did not make."""
    left = list(done)
    missing: list[SupportStep] = []
    for step in plan:
        found = next((call for call in left if matches(step, call)), None)
        if found is None:
            missing.append(step)
        else:
            left.remove(found)
    return missing


def _next_tool(
    plan: Sequence[SupportStep], missing: Sequence[SupportStep], attempts: Attempts
) -> float:
    """Return ``NEXT_TOOL`` if the first missing step's tool was called, else 0."""
    if not missing:
        return 0.0
    needed = missing[0].tool
    made = sum(s.tool == needed for s in plan) - sum(s.tool == needed for s in missing)
    return NEXT_TOOL if attempts.tools.count(needed) > made else 0.0


def _damaged(task: Task, state: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether the agent made a row that is not expected at the end."""
    start = expected(task.initial_state)
    return any(
        row not in start[table] and row not in task.goal["state"][table]
        for table, rows in state.items()
        for row in rows
    )


def _same(given: object, wanted: object) -> bool:
    if isinstance(given, str) and isinstance(wanted, str):
        return given.strip(" .,!?\"'").casefold() == wanted.casefold()
    if isinstance(given, (int, float)) and isinstance(wanted, (int, float)):
        return abs(given - wanted) < 0.005
    return given == wanted
