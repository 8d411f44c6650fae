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
    """Fine-tunes in verl's workers. The optimizer is reset before later updates.

    Args:
        ask: Sends a request to verl, as :meth:`VerlClient.ask` does.
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
        """Convert a given answer to tokens with the chat template."""
        return self._tokens.written(request, content, calls, version=0)

    def learn(self, batch: TrainingBatch, share: float) -> float:
        """Do one optimizer step; verl's servers sleep until they sample again."""
        done = self._ask("imitate", rows=rows_of(batch), rate=share * self._rate)
        return float(done["loss"]) if math.isfinite(done["grad_norm"]) else math.nan

    def measure(self, batch: TrainingBatch) -> float:
        """Return the mean loss per trained token, in nats, without an update."""
        return float(self._ask("measure", rows=rows_of(batch))["loss"])
