"""Metrics of an evaluation, each with its 95 % interval over tasks."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from fractions import Fraction
from typing import Literal, Self, get_args

from pydantic import Field

from agentgym.core.needs import Needs, align
from agentgym.core.notebook import Shown
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.prices import FREE, USUAL_PRICES, Prices
from agentgym.core.records import FrozenRecord
from agentgym.core.trajectory import ModelCall, RolloutStatus, ToolCall, Trajectory
from agentgym.errors import UsageError
from agentgym.evaluate.intervals import (
    UNMEASURED,
    Estimate,
    Pair,
    estimate_pooled,
    estimate_ratio,
    pass_at_k,
    pass_power_k,
)
from agentgym.integrations.offered import offered_functions
from agentgym.scenarios.tool_tasks.unseen import learn_from

MetricName = Literal[
    "right_tool",
    "right_arguments",
    "pass_1",
    "pass_k",
    "tool_reliability",
    "reward",
    "model_calls",
    "prompt_tokens",
    "tokens",
    "token_cost",
    "cost",
    "cost_per_success",
    "seconds",
    "pass_1_of_all",
    "answers_cut",
    "pass_at_k",
]
METRICS: tuple[MetricName, ...] = get_args(MetricName)
_OF_K = {"pass_k": pass_power_k, "pass_at_k": pass_at_k}
SHARES: tuple[MetricName, ...] = METRICS[:5]
"""Metrics that are shares, 0..1, and that success criteria may use."""
AS_SHARES: frozenset[MetricName] = frozenset(
    (*SHARES, "pass_1_of_all", "answers_cut", "pass_at_k")
)
"""All metrics that are shares, 0..1. Other metrics are means, e.g. per rollout."""


_NOTHING: Pair = (0.0, 0.0)


MAX_TURNS = "max_turns"
"""``Reason.kind`` of an episode in which a role made too many model calls."""


class RoleSums(FrozenRecord):
    """The counts of one role over all attempts at one task.

    Attributes:
        attempts: Number of scored attempts in which the role made a model call.
        cut: Number of attempts that ended because this role made too many model calls.
        tool_calls: Number of tool calls that the role requested, without answers in a
            form.
        reliable: Number of these calls that ran without error.
        needed: Number of needed calls that count for the role: those whose tool the
            role called, and those that no role made although this role was offered the
            tool. 0 for a single agent without a name.
        right_tool: Number of needed calls whose tool the role called.
        tokens: Tokens sampled by the role, in attempts with known token counts.
        prompt_tokens: Tokens of the role's prompts, in the same attempts.
    """

    attempts: int
    model_calls: int
    cut: int
    tool_calls: int
    reliable: int
    needed: int
    right_tool: int
    tokens: int
    prompt_tokens: int


class TaskResult(FrozenRecord):
    """The results of all attempts at one task, added up."""

    task_id: str
    family: str = ""
    level: int = 1
    attempts: int  # number of scored attempts
    successes: int
    dropped: int = 0  # attempts without a score; other fields exclude them
    sums: dict[str, Pair] = Field(default_factory=dict)  # by metric, without pass^k
    rewards: tuple[float, ...] = ()  # of the scored attempts, in order
    calls: dict[str, int] = Field(default_factory=dict)  # number by tool
    roles: dict[str, RoleSums] = Field(default_factory=dict)  # by role

    @classmethod
    def of(
        cls,
        trajectories: Sequence[Trajectory],
        prices: Prices | None,
        needs: Needs | None = None,
        replaced: Prices = USUAL_PRICES,
    ) -> Self:
        """Add up the results of one or more attempts at one task.

        ``replaced`` are the prices of the model that the measured one replaces;
        ``needs`` are for the roles of a team.
        """
        scored = [t for t in trajectories if t.status is not RolloutStatus.DROPPED]
        first = trajectories[0]
        sums: dict[str, Pair] = {}
        for trajectory in scored:
            for name, (value, out_of) in _counts(trajectory, prices, replaced).items():
                before = sums.get(name, _NOTHING)
                sums[name] = before[0] + value, before[1] + out_of
        return cls(
            task_id=first.task_id,
            family=first.family,
            level=first.level,
            attempts=len(scored),
            successes=sum(bool(t.success) for t in scored),
            dropped=len(trajectories) - len(scored),
            sums=sums,
            rewards=tuple(t.reward or 0.0 for t in scored),
            calls=Counter(c.name for t in scored for c in t.get_tool_calls()),
            roles=add_up_roles(scored, needs),
        )

    @property
    def success_rate(self) -> Fraction:
        """Exact share of scored attempts that succeeded."""
        return Fraction(self.successes, self.attempts)

    def pair(self, metric: MetricName, k: int) -> Pair:
        """Return a metric's numerator and denominator; ``(0, 0)`` if not measured."""
        if metric == "cost_per_success" and "cost" in self.sums:
            return self.sums["cost"][0], self.successes
        if metric == "pass_1_of_all":
            return self.successes, self.attempts + self.dropped
        if metric not in _OF_K:
            return self.sums.get(metric, _NOTHING)
        if self.attempts < k:
            return _NOTHING
        return _OF_K[metric](self.successes, self.attempts, k), 1.0


class Metrics(Shown, FrozenRecord):
    """The metrics of an agent on a set of tasks. Shares are numbers from 0 to 1.

    Attributes:
        tasks: Number of tasks with a scored rollout.
        rollouts: Number of scored rollouts.
        dropped: Number of rollouts without a score. Only ``pass_1_of_all`` counts them.
        k: The k of ``pass_k`` and ``pass_at_k``.
        right_tool: Share of needed calls (those of the tasks' solutions) whose tool was
            called.
        right_arguments: Share of needed calls made with the right arguments.
        pass_1: Share of rollouts that succeeded.
        pass_k: Probability that k attempts at a task all succeed, by the unbiased
            estimator C(c, k) / C(n, k) of tau-bench (arXiv:2406.12045).
        pass_at_k: Probability that at least one of k attempts succeeds, by the
            unbiased estimator 1 - C(n - c, k) / C(n, k) of HumanEval
            (arXiv:2107.03374).
        tool_reliability: Share of tool calls that name an offered tool, have valid
            arguments, run without error and break no rule. Answers in a form are
            not tool calls.
        reward: Mean reward per rollout.
        model_calls: Mean number of model calls per rollout.
        tokens: Mean number of sampled tokens per rollout.
        prompt_tokens: Mean number of tokens of all prompts of a rollout.
        token_cost: Mean cost of a rollout's tokens at the prices of the model that is
            replaced, in prompt tokens: the number of prompt tokens, without the cached
            ones, that cost as much. Cached are those of an earlier request of the
            rollout with which a prompt begins.
        cost: Mean cost per rollout in US dollars; 0 for a model on this machine.
        cost_per_success: US dollars of all rollouts, divided by the number of
            successes. Not measured without successes or without costs.
        seconds: Mean wall seconds per rollout.
        pass_1_of_all: Like ``pass_1``, but dropped rollouts count as failed.
        answers_cut: Share of the model's answers that were cut at the token limit.
        by_task: The results of each task; empty in files of old versions.
    """

    tasks: int
    rollouts: int
    dropped: int
    k: int
    right_tool: Estimate
    right_arguments: Estimate
    pass_1: Estimate
    pass_k: Estimate
    pass_at_k: Estimate = UNMEASURED
    tool_reliability: Estimate
    reward: Estimate
    model_calls: Estimate
    tokens: Estimate
    prompt_tokens: Estimate = UNMEASURED
    token_cost: Estimate = UNMEASURED
    cost: Estimate = UNMEASURED
    cost_per_success: Estimate = UNMEASURED
    seconds: Estimate = UNMEASURED
    pass_1_of_all: Estimate = UNMEASURED
    answers_cut: Estimate = UNMEASURED
    by_task: tuple[TaskResult, ...] = ()

    def __getitem__(self, metric: MetricName) -> Estimate:
        """Return a metric by its name."""
        found: Estimate = dict(self)[metric]
        return found

    @classmethod
    def of(
        cls,
        trajectories: Sequence[Trajectory],
        *,
        k: int = 4,
        prices: Prices | None = FREE,
        needs: Needs | None = None,
        replaced: Prices = USUAL_PRICES,
    ) -> Self:
        """Compute the metrics of trajectories, at least one of which has a score.

        ``k`` is the k of pass^k (see :meth:`of_tasks`). ``prices`` of the model's
        tokens are None if unknown. ``needs`` has the needed calls of tasks, for the
        results of each role in a team; None if they are unknown. ``replaced`` are the
        prices of the model that the measured one replaces, for ``token_cost``.
        """
        tasks = [
            TaskResult.of(t, prices, needs, replaced) for t in by_task(trajectories)
        ]
        return cls.of_tasks(tasks, k=k)

    @classmethod
    def of_tasks(cls, every: Sequence[TaskResult], *, k: int = 4) -> Self:
        """Compute the metrics from the results of tasks.

        The tasks may come from several measurements.

        ``k`` is the k of pass^k. If a task has fewer than ``k`` scored attempts, its
        number of attempts is used as the k for all tasks.
        """
        scored = [task for task in every if task.attempts]
        if not scored:
            raise ValueError("No rollout was scored, so there is nothing to measure.")
        k = min(k, min(task.attempts for task in scored))
        return cls(
            tasks=len(scored),
            rollouts=sum(task.attempts for task in scored),
            dropped=sum(task.dropped for task in every),
            k=k,
            by_task=tuple(every),
            **{
                name: estimate_ratio(
                    [task.pair(name, k) for task in scored], share=name in AS_SHARES
                )
                for name in METRICS
                if name not in ("cost_per_success", "pass_1_of_all")
            },
            pass_1_of_all=estimate_ratio([t.pair("pass_1_of_all", k) for t in every]),
            cost_per_success=cost_per_success(scored),
        )

    def family_success(self) -> dict[str, Estimate]:
        """Return pass^1 of each family (kind) of tasks, the lowest first."""
        grouped: dict[str, list[Pair]] = defaultdict(list)
        for task in self.by_task:
            if task.attempts:
                grouped[task.family].append(task.pair("pass_1", 1))
        found = {name: estimate_ratio(pairs) for name, pairs in grouped.items()}
        return dict(sorted(found.items(), key=lambda item: item[1].value))

    def at_most(self, k: int) -> Self:
        """Return the metrics with the k of pass^k lowered to ``k``, for a comparison.

        Two measurements may have different k, since a dropped rollout lowers it. If the
        k of these metrics is not above ``k``, or if they have no results by task, they
        are returned unchanged.
        """
        if self.k <= k or not self.by_task:
            return self
        return self.of_tasks(self.by_task, k=k)


def by_task(trajectories: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Group attempts by task, in the order of each task's first attempt."""
    found: dict[str, list[Trajectory]] = defaultdict(list)
    for made in trajectories:
        found[made.task_id].append(made)
    return list(found.values())


def cost_per_success(*sides: Sequence[TaskResult]) -> Estimate:
    """Return US dollars per success, or the first measurement's minus the second's."""
    pairs = [[task.pair("cost_per_success", 1) for task in side] for side in sides]
    known = all("cost" in task.sums for side in sides for task in side)
    if not known or not any(cost for side in pairs for cost, _ in side):
        return UNMEASURED
    return estimate_pooled(*pairs)


def _counts(
    trajectory: Trajectory, prices: Prices | None, replaced: Prices
) -> dict[MetricName, Pair]:
    """Return a rollout's numerator and denominator of each metric that is known."""
    answers = trajectory.form_answers()
    calls = [c for c in trajectory.calls_by_maker()[0] if c.id not in answers]
    stats = trajectory.stats()
    means: dict[MetricName, float | None] = {
        "right_tool": trajectory.right_tool,
        "right_arguments": trajectory.right_arguments,
        "pass_1": bool(trajectory.success),
        "reward": trajectory.reward,
        "model_calls": len(trajectory.model_calls),
        "seconds": trajectory.duration_s,
    }
    if not stats.uncounted_calls:
        read, sampled = stats.prompt_tokens, stats.response_tokens
        means |= {"prompt_tokens": read, "tokens": sampled}
        cached = _cached_tokens(trajectory.model_calls)
        if replaced.prompt:
            cost = replaced.cost(read, sampled, cached)
            means["token_cost"] = 1e6 * cost / replaced.prompt
        if prices is not None:
            means["cost"] = prices.cost(read, sampled, cached)
    reliable = sum(not call.failed for call in calls)
    cut = sum(made.finish_reason == "length" for made in trajectory.model_calls)
    return {
        "tool_reliability": (reliable, len(calls)),
        "answers_cut": (cut, len(trajectory.model_calls)),
        **{name: (mean, 1.0) for name, mean in means.items() if mean is not None},
    }


def _cached_tokens(calls: Sequence[ModelCall]) -> int:
    """Return the number of prompt tokens that an earlier request already had.

    A prompt has them if it begins with all messages of an earlier request that offered
    the same tools. Of each role's requests, only the latest is compared.
    """
    latest: dict[str, ModelCall] = {}
    cached = 0
    for call in calls:
        prompt, _ = call.token_counts or (0, 0)
        known = [
            before.token_counts[0]
            for before in latest.values()
            if before.messages and before.token_counts is not None
            if before.messages == call.messages[: len(before.messages)]
            if before.tools == call.tools
        ]
        cached += min(prompt, max(known, default=0))
        latest[call.agent] = call
    return cached


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


def add_up_roles(
    attempts: Sequence[Trajectory], needs: Needs | None
) -> dict[str, RoleSums]:
    """Add up each role's counts over the scored attempts at one task."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for attempt in attempts:
        for role, counts in _by_role(attempt, needs).items():
            sums[role].update(counts)
    names = RoleSums.model_fields
    return {
        role: RoleSums(**{name: counts[name] for name in names})
        for role, counts in sums.items()
    }


def asked_by(trajectory: Trajectory) -> Iterator[tuple[ToolCall, ModelCall | None]]:
    """Yield each tool call with the model call that requested it."""
    asking: ModelCall | None = None
    left = 0
    for step in trajectory.steps:
        if isinstance(step, ModelCall):
            asking, left = step, len(step.tool_calls)
            continue
        yield step, asking if left > 0 else None
        left -= 1


def _by_role(trajectory: Trajectory, needs: Needs | None) -> dict[str, Counter[str]]:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    counted = not trajectory.stats().uncounted_calls
    for call in trajectory.model_calls:
        mine = found[call.agent]
        mine["attempts"] = 1
        mine["model_calls"] += 1
        if counted and call.token_counts is not None:
            mine.update(prompt_tokens=call.token_counts[0], tokens=call.token_counts[1])
    asked = list(asked_by(trajectory))
    answers = trajectory.form_answers()
    for made, by in asked:
        if by is not None and made.id not in answers:
            ok = not made.failed
            found[by.agent].update(tool_calls=1, reliable=int(ok))
    if found and trajectory.reason is not None and trajectory.reason.kind == MAX_TURNS:
        longest = max(found, key=lambda role: found[role]["model_calls"])
        found[longest]["cut"] += 1
    if needs is not None and found.keys() - {DEFAULT_AGENT}:
        for role, is_right in _needed(trajectory, asked, needs):
            found[role].update(needed=1, right_tool=int(is_right))
    return found


def _needed(
    trajectory: Trajectory,
    asked: Sequence[tuple[ToolCall, ModelCall | None]],
    needs: Needs,
) -> Iterable[tuple[str, bool]]:
    """Yield pairs of a role and whether it called the tool of a needed call.

    A needed call gives one pair for each role for which it counts; these roles are
    defined at ``needed`` in :class:`RoleSums`.
    """
    plan = needs.by_task.get(trajectory.task_id) or ()
    calls = [call for call, _ in asked]
    solved = bool(trajectory.success)
    answered: dict[int, str | None] = {}
    specs = needs.specs_of(trajectory.task_id)
    learn_from(specs, trajectory)
    places = align(plan, calls, specs, succeeded=solved) if plan else ()
    for (call, by), place in zip(asked, places, strict=bool(plan)):
        if place is not None and call.name in plan[place].tools:
            answered[place] = None if by is None else by.agent
    may_call: defaultdict[str, set[str]] = defaultdict(set)
    for model_call in trajectory.model_calls:
        may_call[model_call.agent] |= offered_functions(model_call.tools).keys()
    for place, need in enumerate(plan):
        if (role := answered.get(place)) is not None:
            yield role, True
        elif place not in answered:
            for name, tools in may_call.items():
                if tools & need.tools:
                    yield name, False
