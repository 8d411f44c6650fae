"""Progress: receives the events of a run, for a terminal, a notebook or a test."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Ledger
from agentgym.evaluate.metrics import Metrics

if TYPE_CHECKING:  # observers of a run must not load the gateway
    from agentgym.rollout.probe import AgentReport


@dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Attributes:
        config: Every setting; ``run`` is its folder.
        model: Description of the policy, e.g. ``"nano (1.1M parameters, full
            weights)"``.
        device: ``cpu`` or the GPU's name.
        sandbox: How model-written code is contained.
        workers: Number of worker processes, each with ``concurrency`` episodes in
            flight.
        steps: Most policy updates within the budget.
        held_out: Number of rollouts of the measurement before, and of that after
            training.
        validations: Most validations, of ``eval_tasks`` rollouts each.
        resumed_step: The step to continue from; None for a new run.
        agent: The report on the user's own agent, or None.
        memory: Description of the memory that training takes on the device; empty if
            unknown.
        saved_as: The name under which the trained agent is saved as a version.
        trained: The tokens that the model learns from: a value of ``train_tokens``, or
            the names of the components.
        notes: Sentences about the tasks.
        form: The model's tool-call format, e.g. ``hermes``; empty if unknown.
        path: How the model is sampled and trained, if not the usual way.
        drops_reasoning: Whether its template drops earlier reasoning after the next
            user message.
        answers: Description of the limits of answers and rollouts.
        judge: Description of the judge, its use and its price; empty without one.
        expected: Description of the expected hours, before anything was timed; empty
            if unknown.
        objective: Description of the algorithm and of the KL penalty.
    """

    config: TrainingConfig
    run: Path
    model: str
    device: str
    sandbox: str
    workers: int
    steps: int
    held_out: int
    validations: int
    resumed_step: int | None = None
    agent: "AgentReport | None" = None
    memory: str = ""
    saved_as: str = ""
    trained: str = ""
    notes: tuple[str, ...] = ()
    form: str = ""
    path: str = ""
    drops_reasoning: bool = False
    answers: str = ""
    judge: str = ""
    expected: str = ""
    objective: str = ""


@dataclass(frozen=True)
class StepReport:
    """One finished training step.

    Attributes:
        step: Number of updates done; ``episodes`` training rollouts of the ``budget``
            are done.
        reward: Mean over the step's scored rollouts; likewise ``success_rate``.
        tool_reliability: Share of their tool calls that were reliable.
        loss: Policy loss per trained token; ``entropy`` and ``kl`` are in nats.
        grad_norm: Norm of the gradient before clipping.
        clip_fraction: Share of the ``trained_tokens`` that were clipped.
        logprob_gap: Mean difference, in nats, between the tokens' log-probabilities at
            sampling and at the learner; large for servers in lower precision or with
            other weights.
        reference_kl: Distance from the untrained policy, in nats per trained token;
            None without ``kl_coefficient``.
        skipped_groups: Groups without reward variance, out of ``groups``.
        dropped: Number of dropped rollouts.
        sampled_tokens: Tokens sampled in all rollouts; ``tokens_per_second`` is per
            wall second.
        seconds_left: Remaining seconds for the whole budget, at the pace so far.
        right_tool: Share of needed calls whose tool was called; None if the needed
            calls are unknown. Likewise ``right_arguments``.
        sequences: Mean number of training sequences per rollout: calls whose tokens
            continue each other are one sequence.
        breaks: Calls that continue a conversation, but not its exact tokens: each
            starts a new sequence.
        answers_cut: Share of the model's answers that were cut at the token limit.
        ratio_p99: 99th percentile of the trained tokens' ratios of the learner's
            probability to that at sampling; ``ratio_max`` is the largest; None if not
            measured. Both are 1 if sampling and learning compute the same.
        effective_share: Effective sample size of the trained tokens, weighted by these
            ratios, as a share of their number.
        sequences_masked: Number of sequences that the loss left out, since their mean
            ratio is beyond ``ratio_limit``.
    """

    step: int
    episodes: int
    budget: int
    reward: float
    success_rate: float
    tool_reliability: float
    loss: float
    entropy: float
    kl: float
    grad_norm: float
    clip_fraction: float
    trained_tokens: int
    skipped_groups: int
    groups: int
    dropped: int
    sampled_tokens: int
    rollout_seconds: float
    update_seconds: float
    tokens_per_second: float
    seconds_left: float
    right_tool: float | None = None
    right_arguments: float | None = None
    logprob_gap: float = 0.0
    reference_kl: float | None = None
    sequences: float = 0.0
    breaks: int = 0
    answers_cut: float = 0.0
    ratio_p99: float | None = None
    ratio_max: float | None = None
    effective_share: float | None = None
    sequences_masked: int = 0


class Progress:
    """Receives a run's events and ignores them; override the methods that you need."""

    def planned(self, plan: Plan) -> None:
        """Called when the run is about to start."""

    def starting(self, what: str) -> None:
        """Called when something slow is started; ``what`` is a sentence."""

    def fitted(self, words: str) -> None:
        """Called when the run was fitted to its time limit; ``words`` describe how."""

    def phase(self, name: str, total: int) -> None:
        """Called when a phase of ``total`` rollouts starts, e.g. ``validation``.

        The rollouts of ``imitation`` were played before; now the model learns from
        them.
        """

    def rollout_done(self) -> None:
        """Called when a rollout of the current phase has ended."""

    def baseline(self, metrics: Metrics) -> None:
        """Called when the untrained policy was measured on held-out tasks."""

    def forecast(self, least: float, most: float, soonest: float | None = None) -> None:
        """Called with the remaining seconds for the whole budget, least and most.

        ``soonest`` is the time if the first validation reaches the goal; None if a goal
        does not end the run. This is a rough range, since no update was timed yet. It
        is reported before a warm start, which it includes, and before the first step;
        later, :meth:`stepped` is more precise.
        """

    def wants_warm_start(self, offer: str) -> bool | None:
        """Return whether to start with a warm start; None if no user can be asked."""
        return None

    def warmed(self, words: str, metrics: Metrics) -> None:
        """Called when the warm start is over; ``words`` describe the imitated calls.

        Held-out tasks were measured again.
        """

    def allows(self, doubts: Sequence[str]) -> bool:
        """Return whether to train although the baseline gives reason for ``doubts``."""
        return False

    def may_run(self, tool: str) -> bool | None:
        """Return whether a tool of the user's own agent may really run.

        False answers its calls with made-up values; None leaves it open.
        """
        return None

    def may_rent(self, quote: Sequence[str]) -> bool | None:
        """Return whether to rent a machine; None if no user can be asked."""
        return None

    def may_spend(self, terms: Sequence[str]) -> bool | None:
        """Return whether to spend money on that; None if no user can be asked."""
        return None

    def stepped(self, report: StepReport) -> None:
        """Called when a training step has ended and is on disk."""

    def validated(self, step: int, metrics: Metrics, reached: bool) -> None:
        """Called after a validation; ``reached`` ends the training early."""

    def warned(self, remarks: Sequence[str]) -> None:
        """Called when a validation found new warnings."""

    def stalled(self, reason: str | None) -> None:
        """Called when writing waits, e.g. for disk space; None: it continues."""

    def ended(self, reason: str, ledger: Ledger) -> None:
        """Training is over: ``criteria reached``, ``budget spent``, ``interrupted``."""
