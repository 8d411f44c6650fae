"""CustomerSupportScenario: tasks for an agent at a shop's help desk, with rules."""

from random import Random

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.packs.kit.tasks import GeneratedScenario, plan_of
from agentgym.scenarios.base import Environment, own_environment

from . import rewards
from .environment import MOST_REFUND, REFUND_DAYS, SupportEnvironment
from .families import FAMILIES
from .names import NAMES, SupportNames

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
        """Score an episode by the database and the calls; see ``rewards.score``."""
        own = own_environment(SupportEnvironment, environment)
        return rewards.score(task, own, trajectory)

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
