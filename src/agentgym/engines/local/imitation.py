"""LocalImitation: supervised fine-tuning of the policy with a separate AdamW."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch

from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import RequestedCall
from agentgym.engines.base import (
    BETAS,
    MAX_GRAD_NORM,
    Imitation,
    TrainingBatch,
    usual_rates,
)
from agentgym.engines.local.decoding.threads import kernel_threads
from agentgym.engines.local.loss import PolicyLoss
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.models.folder import SMALL_PARAMETERS


class LocalImitation(Imitation):
    """Fine-tunes the adapter, or all weights if the model has no adapter.

    Args:
        loaded: The model.
        tokens: Converts examples to tokens.
        alone: A function that calls its argument while the model does not sample, and
            returns its result.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        tokens: ChatTokens,
        alone: Callable[[Callable[[], float]], float],
    ) -> None:
        self._loaded = loaded
        self._tokens = tokens
        self._alone = alone
        self._parameters = [p for _, p in loaded.trained_parameters()]
        _, self._rate = usual_rates(
            has_adapter=loaded.adapter is not None,
            is_small=loaded.model.num_parameters() < SMALL_PARAMETERS,
        )
        self._optimizer = torch.optim.AdamW(
            self._parameters, self._rate, betas=BETAS, weight_decay=0.0, fused=True
        )
        self._loss = PolicyLoss(
            loaded, clip=None, entropy_coefficient=0.0, temperature=1.0
        )

    def write(
        self, request: ChatRequest, content: str, calls: Sequence[RequestedCall]
    ) -> ChatResult:
        """Convert a given answer to tokens with the chat template."""
        return self._tokens.written(request, content, calls)

    def learn(self, batch: TrainingBatch, share: float) -> float:
        """Do one step of AdamW while the model does not sample; return the loss."""
        return self._alone(partial(self._step, batch, share))

    def measure(self, batch: TrainingBatch) -> float:
        """Return the mean loss per trained token, in nats, without an update."""
        return self._alone(partial(self._measure, batch))

    @torch.no_grad()
    def _measure(self, batch: TrainingBatch) -> float:
        with kernel_threads(self._loaded.threads[1]):
            forests = self._loss.plant(batch.sequences)
            loss = sum(self._loss.total(forest).loss for forest in forests)
        return loss / batch.trained_tokens

    def _step(self, batch: TrainingBatch, share: float) -> float:
        try:
            with kernel_threads(self._loaded.threads[1]):
                return self._learn(batch, share)
        finally:
            self._optimizer.zero_grad(set_to_none=True)

    def _learn(self, batch: TrainingBatch, share: float) -> float:
        total = batch.trained_tokens
        loss = 0.0
        for forest in self._loss.plant(batch.sequences):
            loss += self._loss.backward(forest, total).loss
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRAD_NORM)
        if not torch.isfinite(norm):
            return math.nan
        for group in self._optimizer.param_groups:
            group["lr"] = share * self._rate
        self._optimizer.step()
        return loss / total
