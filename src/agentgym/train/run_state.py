"""RunState: all that a checkpoint keeps besides the weights, as a WarmStart."""

from pydantic import Field

from agentgym.core.ledger import Ledger
from agentgym.core.records import FrozenRecord, Record
from agentgym.evaluate.metrics import Metrics
from agentgym.train.diagnostics import Watch
from agentgym.train.forgetting import Forgetting
from agentgym.train.stopping import End, Stopping
from agentgym.train.tasks import StreamState


class WarmStart(FrozenRecord):
    """The record of a warm start.

    Attributes:
        tasks: Number of training tasks whose calls were run.
        imitated: Number of tasks that the model learned from: their calls solved them,
            and they were not held out.
        failed: Number of tasks that their calls did not solve, by reason.
        loss: Mean loss per imitated token in the last updates, in nats.
        held_out_loss: Final loss per token of tasks kept out of the warm start, in
            nats; None if not measured.
    """

    tasks: int
    imitated: int
    failed: dict[str, int] = Field(default_factory=dict)
    updates: int
    loss: float
    held_out_loss: float | None = None

    def words(self) -> str:
        """Describe the warm start in a sentence."""
        left_out = f", {sum(self.failed.values()):,} left out" * bool(self.failed)
        apart = ""
        if self.held_out_loss is not None:
            apart = f", {self.held_out_loss:.2f} on plans kept apart"
        return (
            f"the calls of {self.imitated:,} training tasks imitated{left_out}; loss "
            f"{self.loss:.2f} nats a token{apart}"
        )


class RunState(Record):
    """Everything that a checkpoint keeps besides the weights.

    Attributes:
        step: Number of updates done.
        episodes: Number of training rollouts done.
        wall_seconds: Wall seconds of the run so far, over all resumes.
        cpu_seconds: CPU seconds of the run's processes, over all resumes.
        rollout_seconds: Wall seconds per rollout, used to fit the run to its time
            limit; None without a limit.
        training_began: ``wall_seconds`` when the first step began; None before.
        baseline: Metrics of the untrained policy, by held-out set.
        warmed: Metrics after the warm start, by held-out set; empty before.
        first_validation: Validation of the warm start's weights; None without one.
        validation: The newest validation; None while a new one is due.
        validated: Number of validation rollouts of the whole run.
        best_validation: The validation whose weights were best so far.
        stopping: All measurements so far, to decide when the run should end.
        end: Why the run should end before its budget does; None while it goes on.
        right_calls: Share of right answers, mostly of the newest steps, while rollouts
            are single calls.
        whole_episodes: Whether rollouts became whole episodes, after single calls.
        forgetting: The untrained model's answers to everyday questions, and the newest
            distance from that model; None before the questions were asked.
    """

    step: int = 0
    episodes: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    stream: StreamState = Field(default_factory=StreamState)
    rollout_seconds: float | None = None
    training_began: float | None = None
    baseline: dict[str, Metrics] = Field(default_factory=dict)
    warm_start: WarmStart | None = None
    warmed: dict[str, Metrics] = Field(default_factory=dict)
    first_validation: Metrics | None = None
    validation: Metrics | None = None
    validated: int = 0
    best_validation: Metrics | None = None
    stopping: Stopping = Field(default_factory=Stopping)
    end: End | None = None
    watch: Watch = Field(default_factory=Watch)
    ledger: Ledger = Field(default_factory=Ledger)
    forgetting: Forgetting | None = None
    right_calls: float | None = None
    whole_episodes: bool = False

    @property
    def start(self) -> Metrics:
        """Metrics of the main held-out set before the first training step."""
        return next(iter((self.warmed or self.baseline).values()))
