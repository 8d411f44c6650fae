"""CustomerSupportScenario: tasks for a shop's support agent, and their reward."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.packs.kit.rewards import grade, next_tool, not_made
from agentgym.packs.kit.tasks import GeneratedScenario, Step, plan_of
from agentgym.scenarios.base import Environment, own_environment
from agentgym.scenarios.plan_reward import (
    DAMAGE,
    PROGRESS,
    SPARE_CALLS,
    Attempts,
    ReceivedCall,
    is_guessed,
    melted,
)

from .environment import MOST_REFUND, REFUND_DAYS, SupportEnvironment, expected
from .families import FAMILIES
from .story import NAMES, SupportNames

ERROR = -0.02
REPEAT = -0.02
VIOLATION = -0.1
_MOST_ERRORS = 4
_MOST_VIOLATIONS = 2
_TOOLS = [spec.name for spec in tool_specs(SupportEnvironment)]


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
    needed = [step.tool for step in plan]
    missing = not_made(plan, attempts.done, matches)
    made = len(plan) - len(missing)
    spare = SPARE_CALLS[task.level]
    state = environment.end_state()
    success = (
        state == task.goal["state"]
        and (not missing or not task.goal["every_step"])
        and not attempts.violations
        and not is_guessed(attempts, needed, _TOOLS, spare)
    )
    credit = float(made)
    if missing:
        tool = missing[0].tool
        left = sum(step.tool == tool for step in missing)
        credit += next_tool(attempts, tool, needed.count(tool) - left)
    parts = {
        "progress": PROGRESS
        / len(plan)
        * credit
        * melted(len(attempts.tools) - made - spare),
        "errors": ERROR * min(len(attempts.failed), _MOST_ERRORS),
        "repeats": REPEAT * min(_repeated(attempts.done), _MOST_ERRORS),
        "rules": VIOLATION * min(attempts.violations, _MOST_VIOLATIONS),
        "damage": DAMAGE if _damaged(task, state) else 0.0,
    }
    return grade(
        attempts,
        needed,
        parts,
        success=success,
        arguments=made / len(plan),
        error=ERROR,
        spare=spare,
    )


def matches(step: Step, call: ReceivedCall) -> bool:
    """Return whether a call has the tool and the arguments that a step requires."""
    return step.tool == call.tool and all(
        _same(call.args[name], value) for name, value in step.args.items()
    )


def _repeated(done: Sequence[ReceivedCall]) -> int:
    """Count calls that repeat an earlier call with the same arguments."""
    return sum(call in done[:index] for index, call in enumerate(done))


def _plan(task: Task, done: Sequence[ReceivedCall]) -> list[Step]:
    """Return the shortest solution's calls, adapted to the calls that were made."""
    # list_orders shows the same fields as get_order.
    owners = {number: owner for number, owner, *_ in task.initial_state["orders"]}
    plan = []
    for step in plan_of(task.goal):
        if step.tool == "get_order" and not _made(step, done):
            owner = owners.get(step.args["order_id"])
            listed = step._replace(tool="list_orders", args={"customer_id": owner})
            step = listed if _made(listed, done) else step
        plan.append(step)
    return plan


def _made(step: Step, done: Sequence[ReceivedCall]) -> bool:
    return any(matches(step, call) for call in done)


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


ROLE = (
    "You are the support agent of a shop. Use the tools, then answer briefly. "
    "Ask for what is missing."
)
RULES = (
    "Rules: verify the customer by email and postcode before you list orders, open a "
    "ticket or change anything. Look at the order before you change it. Cancel or "
    "change the address only before it is shipped; after that, return the items "
    "instead of a cancel. Refund only delivered orders, in total, once, within "
    f"{REFUND_DAYS} days; if later or over {MOST_REFUND}, escalate. Else do nothing."
)
SYSTEM_PROMPT = f"{ROLE} {RULES}"


class CustomerSupportScenario(GeneratedScenario[SupportNames]):
    """Tasks to help a shop's customers with orders, refunds and complaints."""

    name = "customer_support"
    description = "Help a shop's customers with orders, refunds and complaints."
    difficulty = "intermediate"
    estimated_time = "about 25 minutes on 2 cores"
    max_turns = 12

    prompt = SYSTEM_PROMPT
    environment = SupportEnvironment
    families = FAMILIES

    def names_for(self, split: Split, rng: Random) -> SupportNames:
        """Return the names of people, places and products of a split."""
        return NAMES[split]

    def create_environment(self, task: Task) -> SupportEnvironment:
        """Return a new environment with the task's shop and customer."""
        return SupportEnvironment(task.initial_state, task.instruction)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode by the database and the calls; see :func:`score`."""
        own = own_environment(SupportEnvironment, environment)
        return score(task, own, trajectory)

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls of the shortest solution; any ``reason`` counts as right."""
        free = {"escalate": {"reason": "asked for"}}
        any_reason = frozenset({"reason"})
        return [
            NeededCall(s.tool, {**s.args, **free.get(s.tool, {})}, (), any_reason)
            for s in plan_of(task.goal)
        ]

    def vocabulary(self, split: Split) -> set[str]:
        """Return the names that only tasks of this split use, in lower case."""
        return {word.lower() for word in NAMES[split].words()}

    def success_criteria(self) -> dict[str, float]:
        """Return the goals at which training ends early.

        They are for validation tasks of levels 1 and 2. ``tool_reliability`` is 2
        points above the 95 % wanted on held-out tasks: training ends at the first
        validation that reaches the goals, and such a result overestimates the policy.
        """
        return {"tool_reliability": 0.97, "success_rate": 0.9, "cost_reduction": 0.30}
