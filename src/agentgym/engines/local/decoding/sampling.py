"""Sample a response's next tokens, and draft several of them.

A draft guesses a response's next tokens; one forward pass then checks all of them. This
is speculative decoding (Leviathan et al. 2023, https://arxiv.org/abs/2211.17192). The
guesses are looked up in the prompt and in earlier responses, since a tool call mostly
repeats words. A wrong guess costs a little arithmetic and does not change the result:
each token is sampled from the same random number as without drafts.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentgym.engines.base import Allowed

_LONG, _SHORT, _COPIED = 8, 4, 3
_MOST_RUNS = 500_000

type Runs = Mapping[tuple[int, ...], int]
"""For runs (a few consecutive tokens), the token that followed a run last."""


def runs_of(ids: Sequence[int]) -> Runs:
    """Map every three consecutive tokens of a prompt to the token after them."""
    return dict(zip(zip(ids, ids[1:], ids[2:], strict=False), ids[3:], strict=False))


class Drafter:
    """Guesses the next tokens of a response from earlier responses and its prompt.

    It looks up the last eight tokens in earlier responses, then the last four, then the
    last three tokens in the response's own prompt.
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}

    def learn(self, prompt: Sequence[int], response: Sequence[int]) -> None:
        """Remember a complete response for later drafts."""
        if len(self._after) > _MOST_RUNS:
            self._after.clear()
        ids = (*prompt[-_LONG:], *response)
        for end in range(len(ids) - len(response), len(ids)):
            self._after[ids[max(0, end - _LONG) : end]] = ids[end]
            self._after[ids[max(0, end - _SHORT) : end]] = ids[end]

    def draft(
        self, prompt: Sequence[int], response: Sequence[int], own: Runs, most: int
    ) -> list[int]:
        """Return up to ``most`` likely next tokens; fewer if a lookup finds nothing."""
        ids = (*prompt[-_LONG:], *response[-_LONG:])
        start = len(ids)
        for _ in range(most):
            token = self._after.get(ids[-_LONG:])
            if token is None:
                token = self._after.get(ids[-_SHORT:])
            if token is None:
                token = own.get(ids[-_COPIED:])
            if token is None:
                break
            ids = (*ids, token)
        return list(ids[start:])


def random_stream(seed: int, count: int) -> NDArray[np.float32]:
    """Return ``count`` uniform numbers in [0, 1) that depend on ``seed`` alone."""
    generator = np.random.Generator(np.random.Philox(abs(seed)))
    return generator.random(count, dtype=np.float32)


@torch.inference_mode()
def hold(logits: Tensor, places: Sequence[int], allowed: Sequence[Allowed]) -> None:
    """Set the logits of tokens that are not allowed to minus infinity, in place."""
    bits = np.frombuffer(b"".join(each.bits for each in allowed), np.uint8)
    rows = np.unpackbits(
        bits.reshape(len(places), -1),
        axis=1,
        count=logits.shape[1],
        bitorder="little",
    )
    hidden = torch.from_numpy(rows == 0).to(logits.device)
    if len(places) == len(logits):
        logits.masked_fill_(hidden, -torch.inf)
        return
    which = torch.tensor(places, device=logits.device)
    logits[which] = logits[which].masked_fill_(hidden, -torch.inf)


def sample(
    logits: Tensor, temperatures: Tensor, uniforms: Tensor
) -> tuple[list[int], list[float]]:
    """Sample one token per row by inverse transform sampling."""
    greedy = temperatures == 0
    scale = torch.where(greedy, 1.0, temperatures)
    log_probabilities = torch.log_softmax(logits.float() / scale[:, None], dim=-1)
    cumulative = log_probabilities.exp().cumsum(-1)
    # The factor keeps rounding from exceeding the total, past the last token.
    targets = uniforms * cumulative[:, -1] * (1 - 1e-6)
    tokens = torch.searchsorted(cumulative, targets[:, None], right=True)
    if bool(greedy.any()):
        tokens = torch.where(greedy[:, None], logits.argmax(-1, keepdim=True), tokens)
    chosen = log_probabilities.gather(-1, tokens)
    return tokens[:, 0].tolist(), chosen[:, 0].tolist()
