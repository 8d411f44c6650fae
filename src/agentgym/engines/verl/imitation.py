"""VerlImitation: supervised fine-tuning in verl's workers, for a warm start."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import RequestedCall
from agentgym.engines.base import Imitation, TrainingBatch
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.engines.verl.protocol import rows_of


class VerlImitation(Imitation):
    """Fine-tunes with verl's optimizer, whose state is dropped afterwards.

    Args:
        ask: Sends a request to verl: its verb, and its arguments by name.
        tokens: Converts answers to tokens.
        rate: The full learning rate.
    """

    def __init__(
        self, ask: Callable[..., Any], tokens: ChatTokens, rate: float
    ) -> None:
        self._ask = ask
        self._tokens = tokens
        self._rate = rate

    def write(
        self, request: ChatRequest, content: str, calls: Sequence[RequestedCall]
    ) -> ChatResult:
        """Return an answer in the tokens of the chat template."""
        return self._tokens.written(request, content, calls, version=0)

    def learn(self, batch: TrainingBatch, share: float) -> float:
        """Take one optimizer step; the servers sleep until they sample again."""
        done = self._ask("imitate", rows=rows_of(batch), rate=share * self._rate)
        return float(done["loss"]) if math.isfinite(done["grad_norm"]) else math.nan

    def measure(self, batch: TrainingBatch) -> float:
        """Return the mean loss per trained token."""
        return float(self._ask("measure", rows=rows_of(batch))["loss"])
