"""Progress: the events of a run, for the terminal, a notebook or a test."""

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
        model: The policy in words, e.g. ``"nano (1.1M parameters, full weights)"``.
        device: ``cpu`` or the GPU's name.
        sandbox: How model-written code is contained.
        workers: Worker processes, ``concurrency`` episodes in flight each.
        steps: Most policy updates within the budget.
        held_out: Rollouts of the measurements before and after, each.
        validations: Most measurements in between, of ``eval_tasks`` rollouts each.
        resumed_step: The step continued from, None for a new run.
        agent: The report on the user's own agent, None if there is none.
        memory: Memory that training takes on the device, in words; empty if not known.
        saved_as: The name of which the trained agent becomes a version.
        trained: Which of its own tokens the model learns from: a value of
            ``train_tokens``, or the names of the components.
        notes: What to know of the tasks, in sentences.
        form: The form of the model's tool calls, e.g. ``hermes``; empty if not known.
        path: How the model is sampled and trained where that is not the usual way.
        drops_reasoning: Whether its template leaves earlier reasoning out once the
            user speaks again.
        answers: How long answers and rollouts may be, in words.
        judge: Who ranks attempts, how often and for how much, in words; empty without.
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


@dataclass(frozen=True)
class StepReport:
    """One finished training step.

    Attributes:
        step: Updates done, with ``episodes`` of the ``budget`` of training rollouts.
        reward: Mean over the step's scored rollouts; ``success_rate`` likewise.
        tool_reliability: Share of their tool calls that were reliable.
        loss: Policy loss per trained token; ``entropy`` and ``kl`` are in nats.
        grad_norm: Before clipping.
        clip_fraction: Share of the ``trained_tokens`` that were clipped.
        logprob_gap: How far, in nats and on average, their log-probabilities when they
            were sampled are from the learner's; servers in lower precision, or with
            other weights, make it large.
        reference_kl: Distance from the untrained policy, in nats per trained token;
            None without ``kl_coefficient``.
        skipped_groups: Groups without reward variance, of ``groups``.
        dropped: Rollouts of the step that were left out.
        sampled_tokens: In all its rollouts; ``tokens_per_second`` over its wall time.
        seconds_left: Until the run ends if its budget is spent, at the pace so far.
        right_tool: Share of the calls needed whose tool was called; None if the
            scenario does not list the needed calls. ``right_arguments`` likewise.
        sequences: That a rollout's model calls make, on average: calls whose tokens
            continue each other are one.
        breaks: Calls that continue a conversation, and not the tokens that were seen
            and sampled in it: each begins a sequence of its own.
        answers_cut: Share of the model's answers that ended at their most tokens.
        ratio_p99: 99 % of the trained tokens have at most this ratio of the learner's
            probability to that of sampling, ``ratio_max`` is the largest; None where
            the engine does not measure it. Both are 1 where sampling and learning
            compute the same.
        effective_share: Effective sample size of the trained tokens, weighed by these
            ratios, as a share of their number.
        sequences_masked: Sequences of the step that the loss left out, since their
            ratio is beyond ``ratio_limit`` in the mean.
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
    """An observer that ignores all events; override the methods of those you need."""

    def planned(self, plan: Plan) -> None:
        """The run is about to start."""

    def starting(self, what: str) -> None:
        """Something that takes minutes to start is started; ``what`` is a sentence."""

    def fitted(self, words: str) -> None:
        """The run was sized to its time; ``words`` say how."""

    def phase(self, name: str, total: int) -> None:
        """A phase of ``total`` rollouts starts: e.g. ``validation``.

        Those of ``imitation`` were played before, and are learned from.
        """

    def rollout_done(self) -> None:
        """One rollout of the current phase has ended."""

    def baseline(self, metrics: Metrics) -> None:
        """The untrained policy was measured on held-out tasks."""

    def forecast(self, least: float, most: float, soonest: float | None = None) -> None:
        """A measurement says how many seconds are left if the budget is spent.

        ``soonest`` are left if the goal holds at the first validation; None if a goal
        does not end the run.
        A rough range: no update was timed yet. It is reported before a warm start,
        which it includes, and before the first step; later :meth:`stepped` is more
        precise.
        """

    def wants_warm_start(self, offer: str) -> bool | None:
        """Return whether to begin with a warm start; None if no user can be asked."""
        return None

    def warmed(self, words: str, metrics: Metrics) -> None:
        """The warm start is over; ``words`` describe the imitated calls.

        Held-out tasks were measured again.
        """

    def allows(self, doubts: Sequence[str]) -> bool:
        """Say whether to train although the baseline gives reason for ``doubts``."""
        return False

    def may_run(self, tool: str) -> bool | None:
        """Say whether a tool of the user's own agent may really run.

        False answers its calls with made-up values; None does not say.
        """
        return None

    def may_rent(self, quote: Sequence[str]) -> bool | None:
        """Return whether to rent a machine for that; None if no user can be asked."""
        return None

    def may_spend(self, terms: Sequence[str]) -> bool | None:
        """Return whether to spend money on that; None if no user can be asked."""
        return None

    def stepped(self, report: StepReport) -> None:
        """A training step has ended and is on disk."""

    def validated(self, step: int, metrics: Metrics, reached: bool) -> None:
        """Validation tasks were measured; ``reached`` ends the training early."""

    def warned(self, remarks: Sequence[str]) -> None:
        """Validation found new warnings about the run."""

    def stalled(self, reason: str | None) -> None:
        """Writing waits, e.g. because the disk is full; None: it goes on."""

    def ended(self, reason: str, ledger: Ledger) -> None:
        """Training is over: ``criteria reached``, ``budget spent``, ``interrupted``."""
