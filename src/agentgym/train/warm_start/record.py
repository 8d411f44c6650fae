"""WarmStart: a run's record of its warm start."""

from pydantic import Field

from agentgym.core.records import FrozenRecord


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
