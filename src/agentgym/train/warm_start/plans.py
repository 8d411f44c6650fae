"""Plans: a policy that makes the calls which tasks are known to need, and then ends."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from agentgym.core.config import TrainingConfig
from agentgym.core.needs import NeededCall
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import RequestedCall
from agentgym.engines.base import Imitation
from agentgym.engines.registry import ENGINES
from agentgym.errors import ScenarioError
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import make_tasks

ANSWER = "Done."
"""What is said once all calls were made."""

_SEED = 500_000
"""Added to the seed of the first training tasks, so that others are imitated."""


_LOOKED_AT = 100
"""Training tasks of which one must have a plan."""

Planned = tuple[Task, Sequence[NeededCall]]
"""A task with the calls that it needs."""


def calls_known(scenario: Scenario, seed: int) -> bool:
    """Say whether the scenario tells the calls that training tasks need.

    Raises:
        ScenarioError: It has no training tasks.
    """
    tasks = make_tasks(scenario, Split.TRAIN, seed, _LOOKED_AT)
    return any(scenario.needed_calls(task) is not None for task in tasks)


def can_imitate(config: TrainingConfig, scenario: Scenario) -> bool:
    """Say whether ``warm_start`` is something that a run could have."""
    return ENGINES.get(config.engine).imitates and calls_known(scenario, config.seed)


def check_calls_known(scenario: Scenario, seed: int) -> None:
    """Refuse a scenario that nothing can be imitated of.

    Raises:
        ScenarioError: It does not tell the calls that tasks need; says what to do.
    """
    if not calls_known(scenario, seed):
        raise ScenarioError(
            f"A warm start imitates the calls that tasks need, and {scenario.name} "
            "does not tell them: write needed_calls(task) of the scenario (in a tasks "
            "file: `expect` of its lines), or leave --warm-start out."
        )


def tasks_to_imitate(scenario: Scenario, seed: int, count: int) -> list[Planned]:
    """Return training tasks with a plan, others than those that a run begins with.

    A scenario that has few gives the same.

    Raises:
        ScenarioError: There are no training tasks, or none has a plan.
    """
    check_calls_known(scenario, seed)
    tasks = make_tasks(scenario, Split.TRAIN, seed * 1_000_003 + _SEED, count)
    plans = ((task, scenario.needed_calls(task)) for task in tasks)
    return [(task, plan) for task, plan in plans if plan is not None]


class PlanPolicy(Policy):
    """Stands in for the policy, and makes the needed calls of each rollout, in order.

    One call an answer, so that each result is read before the next; then it ends. A
    team's agents share their rollout's plan: who is asked makes the next call, if it is
    of a tool that it was offered.

    Args:
        imitation: Writes the answers as the policy would.
        plans: The needed calls, by rollout id.
    """

    def __init__(
        self, imitation: Imitation, plans: Mapping[str, Sequence[NeededCall]]
    ) -> None:
        self._imitation = imitation
        self._plans = plans
        self._made: Counter[str] = Counter()

    @property
    def model_name(self) -> str:
        """``plans``."""
        return "plans"

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer with the next call of the rollout's plan, at its end with text."""
        rollout, attempt, *_ = request.session.split("/")
        place = f"{rollout}/{attempt}"
        offered = {tool["function"]["name"] for tool in request.tools}
        left = self._plans[rollout][self._made[place] :]
        if not left or left[0].tool not in offered:
            return self._imitation.write(request, ANSWER, ())
        number = self._made[place] = self._made[place] + 1
        arguments = json.dumps(dict(left[0].arguments), ensure_ascii=False)
        call = RequestedCall(
            id=f"call_{number:05d}", name=left[0].tool, arguments=arguments
        )
        return self._imitation.write(request, "", [call])
