"""Prices of a model's tokens."""

from pydantic import BaseModel, ConfigDict, Field


class Prices(BaseModel):
    """What a model's tokens cost, in US dollars per million.

    Attributes:
        prompt: Of tokens that the model reads.
        response: Of tokens that it samples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: float = Field(ge=0, allow_inf_nan=False)
    response: float = Field(ge=0, allow_inf_nan=False)

    def of(self, prompt_tokens: float, response_tokens: float) -> float:
        """Return what so many tokens cost, in US dollars."""
        return (self.prompt * prompt_tokens + self.response * response_tokens) / 1e6


FREE = Prices(prompt=0.0, response=0.0)
"""Of a model on this machine."""
