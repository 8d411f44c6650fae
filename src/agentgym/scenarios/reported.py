"""Parse rewards that programs report as JSON."""

from pydantic import BaseModel, ConfigDict, Field

from agentgym.core.trajectory import Reward


class ReportedReward(BaseModel):
    """A reward that a program or a check command reports, from 0 to 1.

    If ``success`` is None, a reward of 1 is a success. Other keys are ignored.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    reward: float = Field(ge=0, le=1)
    success: bool | None = None

    def to_reward(self) -> Reward:
        """Convert the report to the reward of an episode."""
        is_solved = self.reward >= 1 if self.success is None else self.success
        return Reward(self.reward, is_solved, {"reported": self.reward})
