"""RoleMetrics: the metrics of each agent (role) of a team, with 95 % intervals."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Literal, Self

from agentgym.core.records import FrozenRecord
from agentgym.errors import UsageError
from agentgym.evaluate.intervals import Estimate, estimate_ratio
from agentgym.evaluate.metrics import Metrics, TaskResult
from agentgym.evaluate.role_sums import RoleSums

RoleMetric = Literal[
    "right_tool", "tool_reliability", "model_calls", "tokens", "prompt_tokens", "cut"
]


class RoleMetrics(FrozenRecord):
    """The metrics of one role on a set of tasks.

    Means are per rollout of the team, also if the role did not take part in a rollout.
    So the means of all roles add up to the team's.

    Attributes:
        rollouts: Number of rollouts in which the role made a model call.
        right_tool: Share of the role's needed calls (see :class:`RoleSums`) whose tool
            it called.
        tool_reliability: Share of the role's tool calls that name an offered tool, have
            valid arguments, run without error and break no rule.
        tokens: Mean number of tokens that the role sampled.
        prompt_tokens: Mean number of tokens of the role's prompts.
        cut: Share of rollouts that ended because this role made too many model calls.
    """

    rollouts: int
    right_tool: Estimate
    tool_reliability: Estimate
    model_calls: Estimate
    tokens: Estimate
    prompt_tokens: Estimate
    cut: Estimate

    def __getitem__(self, metric: RoleMetric) -> Estimate:
        """Return a metric by its name."""
        found: Estimate = dict(self)[metric]
        return found

    @classmethod
    def of(cls, role: str, tasks: Sequence[TaskResult]) -> Self:
        """Compute the metrics of a role from the results of scored tasks."""
        silent = RoleSums(**dict.fromkeys(RoleSums.model_fields, 0))
        sums = [task.roles.get(role, silent) for task in tasks]
        attempts = [task.attempts for task in tasks]
        known = [task.pair("tokens", 1)[1] for task in tasks]

        needed, called = [s.needed for s in sums], [s.tool_calls for s in sums]

        def ratio(name: str, of: Iterable[float], *, share: bool = False) -> Estimate:
            numbers = (getattr(s, name) for s in sums)
            return estimate_ratio(list(zip(numbers, of, strict=True)), share=share)

        return cls(
            rollouts=sum(s.attempts for s in sums),
            right_tool=ratio("right_tool", needed, share=True),
            tool_reliability=ratio("reliable", called, share=True),
            model_calls=ratio("model_calls", attempts),
            tokens=ratio("tokens", known),
            prompt_tokens=ratio("prompt_tokens", known),
            cut=ratio("cut", attempts, share=True),
        )


def role_metrics(metrics: Metrics, *others: Metrics) -> dict[str, RoleMetrics]:
    """Return the metrics of each role of a team, in the order of their first calls.

    Empty if only one role made calls, also in ``others``: other measurements of the
    team, in which more of its roles may have made some.
    """
    tasks = [task for task in metrics.by_task if task.attempts]
    every = (task for each in (metrics, *others) for task in each.by_task)
    roles = dict.fromkeys(role for task in every for role in task.roles)
    return {role: RoleMetrics.of(role, tasks) for role in roles if len(roles) > 1}


def check_roles(wanted: Sequence[str] | None, seen: Iterable[Metrics]) -> None:
    """Check that each role in ``train_roles`` made a model call before training."""
    tasks = [task for metrics in seen for task in metrics.by_task if task.attempts]
    known = dict.fromkeys(role for task in tasks for role in task.roles)
    for role in wanted or ():
        if role not in known:
            close = get_close_matches(role, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"train_roles names {role!r}, and no agent of this name has spoken in "
                f"the rollouts before training.{hint} Those that have: "
                f"{', '.join(known)}."
            )
