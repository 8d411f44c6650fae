"""WarmStart: what a run remembers of what it imitated."""

from pydantic import BaseModel, Field


class WarmStart(BaseModel, frozen=True, extra="forbid"):
    """What was imitated.

    Attributes:
        tasks: Training tasks whose calls were played.
        imitated: Of them, those that the calls solved: what was learned from.
        failed: The others, by reason.
        updates: Of the weights.
        loss: Mean per imitated token in the last updates, in nats.
        held_out_loss: The same of plans that were kept apart, at the end; None if it
            was not measured.
    """

    tasks: int
    imitated: int
    failed: dict[str, int] = Field(default_factory=dict)
    updates: int
    loss: float
    held_out_loss: float | None = None

    def words(self) -> str:
        """Say what was imitated."""
        left_out = f", {self.tasks - self.imitated:,} left out" * bool(self.failed)
        apart = ""
        if self.held_out_loss is not None:
            apart = f", {self.held_out_loss:.2f} on plans kept apart"
        return (
            f"the calls of {self.imitated:,} training tasks imitated{left_out}; loss "
            f"{self.loss:.2f} nats a token{apart}"
        )
