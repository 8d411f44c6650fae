"""Progress: receive the events of a run, to show them or to answer questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Ledger
from agentgym.evaluate.metrics import Metrics

if TYPE_CHECKING:  # observers of a run must not load the gateway
    from agentgym.rollout.inspection import AgentReport


@dataclass(frozen=True)
class Plan:
    """The plan of a run, to show before the run starts.

    An empty text means that the value is unknown or not used.

    Attributes:
        run: The run's folder.
        model: Description of the policy, e.g. ``"nano (1.1M parameters, full
            weights)"``.
        device: ``cpu`` or the GPU's name.
        workers: Number of worker processes. Each runs ``concurrency`` episodes at once.
        steps: Maximum number of policy updates within the budget.
        held_out: Number of rollouts in the measurement before training. The measurement
            after training has as many.
        validations: Maximum number of validations, of ``eval_tasks`` rollouts each.
        resumed_step: The step from which the run continues; None for a new run.
        agent: The report on a trial of the user's own agent, if there is one.
        memory: Description of the memory that training needs on the device.
        saved_as: The name under which the trained agent is saved.
        trained: The tokens that the model learns from: a value of ``train_tokens``, or
            names of :class:`~agentgym.core.components.Component`.
        notes: Remarks on the settings and the tasks, in sentences.
        form: The model's tool-call format, e.g. ``hermes``.
        path: Why sampling and training will be slower than usual; else empty.
        drops_reasoning: Whether the chat template drops the reasoning of earlier
            answers after the next user message.
        answers: Description of the limits of answers and rollouts.
        judge: Description of the judge, its use and its price.
        expected: Description of the expected duration.
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
    """The figures of one finished training step.

    Attributes:
        step: Number of updates done, this one included.
        episodes: Number of training rollouts done, of at most ``budget``.
        reward: Mean reward of the step's scored rollouts.
        success_rate: Share of the step's scored rollouts that succeeded.
        tool_reliability: Share of the tool calls in these rollouts that ran without an
            error.
        loss: Mean policy loss per trained token.
        entropy: Mean entropy per trained token, in nats.
        kl: KL divergence between the policy at sampling and after the update, in nats
            per trained token.
        grad_norm: Norm of the gradient before clipping.
        clip_fraction: Share of trained tokens whose probability ratio was clipped.
        logprob_gap: Mean absolute difference, in nats, between a token's
            log-probability at sampling and in the learner. It is large if the sampling
            server has lower precision or other weights.
        reference_kl: KL divergence from the untrained policy, in nats per trained
            token; None without ``kl_coefficient``.
        skipped_groups: Number of groups without a training signal, e.g. because their
            rollouts had equal rewards. A group has the step's rollouts of one task.
        tokens_per_second: Sampled tokens of all rollouts per wall second.
        seconds_left: Remaining seconds for the whole budget, at the pace so far.
        right_tool: Share of needed calls whose tool was called; None if unknown.
        right_arguments: Share of needed calls made with the right arguments; None if
            unknown.
        sequences: Mean number of training sequences per rollout. Model calls are one
            sequence if each continues the exact tokens of the call before.
        breaks: Number of model calls that continue a conversation, but not its exact
            tokens. Each of them starts a new sequence.
        answers_cut: Share of the model's answers that were cut at the token limit.
        ratio_p99: 99th percentile of the ratio of a trained token's probability in the
            learner to its probability at sampling (1 if both compute equal
            probabilities); ``ratio_max`` is the largest. None if not measured.
        effective_share: Effective sample size of the trained tokens with these ratios
            as weights, divided by their number; None if not measured.
        sequences_masked: Number of sequences that the loss left out, since their mean
            ratio is above ``ratio_limit`` or below its inverse.
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
    """Base class for receivers of a run's events; override the methods that you need.

    The methods of this class do nothing.
    """

    def planned(self, plan: Plan) -> None:
        """Called when the run is about to start."""

    def starting(self, what: str) -> None:
        """Called when something slow starts; ``what`` describes it in a sentence."""

    def fitted(self, words: str) -> None:
        """Called with a text on how many tasks and steps fit into the time limit."""

    def phase(self, name: str, total: int) -> None:
        """Called when a phase of ``total`` rollouts starts, e.g. ``validation``.

        In the phase ``imitation``, the model learns from rollouts that were run before.
        """

    def rollout_done(self) -> None:
        """Called when a rollout of the current phase has ended."""

    def baseline(self, metrics: Metrics) -> None:
        """Called when the untrained policy was measured on held-out tasks."""

    def forecast(self, least: float, most: float) -> None:
        """Called with an estimate of the remaining time, in seconds.

        It is called before a warm start and before the first step. The estimate is
        rough, since no update was timed yet; :meth:`stepped` is more precise.

        Args:
            least: Least time for the whole budget, a warm start included.
            most: Most time for the whole budget, a warm start included.
        """

    def wants_warm_start(self, offer: str) -> bool | None:
        """Ask whether to begin with a warm start; return None if no user can answer.

        ``offer`` is the text to show.
        """
        return None

    def warmed(self, words: str, metrics: Metrics) -> None:
        """Called when the warm start is over.

        Args:
            words: Description of the calls that the policy learned from.
            metrics: Metrics on held-out tasks after the warm start.
        """

    def allows(self, doubts: Sequence[str]) -> bool:
        """Ask whether to train despite ``doubts``: reasons why training may fail."""
        return False

    def may_run(self, tool: str) -> bool | None:
        """Ask whether a tool of the user's own agent may really run.

        If False, the tool's calls get made-up answers. None means that no user can
        answer the question.
        """
        return None

    def may_rent(self, quote: Sequence[str]) -> bool | None:
        """Ask whether to rent a machine; return None if no user can answer.

        ``quote`` has the sentences to show.
        """
        return None

    def may_spend(self, terms: Sequence[str]) -> bool | None:
        """Ask whether to spend money; return None if no user can answer.

        ``terms`` has the sentences to show, with the price.
        """
        return None

    def stepped(self, report: StepReport) -> None:
        """Called when a training step has ended and was saved."""

    def validated(self, step: int, metrics: Metrics, reached: bool) -> None:
        """Called after a validation; if ``reached`` is true, the goal is reached."""

    def warned(self, remarks: Sequence[str]) -> None:
        """Called with new warnings, in sentences."""

    def stalled(self, reason: str | None) -> None:
        """Called with the reason if writing to the disk is delayed.

        Called again with None when writing works again.
        """

    def ended(self, reason: str, ledger: Ledger) -> None:
        """Called when training is over.

        Args:
            reason: Why it ended, e.g. ``criteria reached`` or ``budget spent``.
            ledger: Counts of the run's model calls.
        """

    def finished(self, verdict: Sequence[str]) -> None:
        """Called at the end of the run with sentences on whether training helped."""
