"""Prices: the prices of a model's tokens."""

from typing import Any

from pydantic import Field

from agentgym.core.records import FrozenRecord


class Prices(FrozenRecord):
    """Prices of a million tokens in US dollars.

    ``cached`` is None if it costs as ``prompt``.
    """

    prompt: float = Field(ge=0, allow_inf_nan=False)
    response: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def cost(self, prompt: float, response: float, cached: float = 0) -> float:
        """Return the price of these tokens; ``cached`` are a part of ``prompt``."""
        again = self.prompt if self.cached is None else self.cached
        new = self.prompt * (prompt - cached)
        return (new + again * cached + self.response * response) / 1e6


FREE = Prices.model_construct(prompt=0.0, response=0.0)
"""Prices of a model that runs on this machine."""
USUAL_PRICES = Prices.model_construct(prompt=1.0, cached=0.25, response=4.0)
"""The ratio of a hosted model's prices, if it is not known which model is replaced."""


def read_prices(value: Any) -> Any:
    """Return prices from a text such as ``0.4,0.1,1.6``: prompt, cached, response."""
    if not isinstance(value, str):
        return value
    names, numbers = ("prompt", "cached", "response"), value.split(",")
    if len(numbers) != len(names):
        raise ValueError("write the prices of three kinds, as in 0.4,0.1,1.6")
    return dict(zip(names, numbers, strict=True))
