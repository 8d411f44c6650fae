"""The next tokens of a response: drafts of several, and sampling them one by one.

Drafts are guesses of how a response goes on, which one forward pass then checks:
speculative decoding (Leviathan et al. 2023, https://arxiv.org/abs/2211.17192) with
the conversation so far as the draft model (prompt lookup): a tool call is mostly a
form filled in with words of the prompt. A wrong guess costs a little arithmetic and
changes nothing: each token is sampled as it would be without, from the same number.
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
"""The token after each run of tokens when it was last seen."""


def runs_of(ids: Sequence[int]) -> Runs:
    """Return the token that follows each run of three tokens within a prompt."""
    return dict(zip(zip(ids, ids[1:], ids[2:], strict=False), ids[3:], strict=False))


class Drafter:
    """Remembers responses, and drafts others from them.

    A run of eight tokens predicts the next one best, then one of four, then one of
    three in the response's own prompt.
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}

    def learn(self, prompt: Sequence[int], response: Sequence[int]) -> None:
        """Remember a whole response."""
        if len(self._after) > _MOST_RUNS:
            self._after.clear()
        ids = (*prompt[-_LONG:], *response)
        for end in range(len(ids) - len(response), len(ids)):
            self._after[ids[max(0, end - _LONG) : end]] = ids[end]
            self._after[ids[max(0, end - _SHORT) : end]] = ids[end]

    def draft(
        self, prompt: Sequence[int], response: Sequence[int], own: Runs, most: int
    ) -> list[int]:
        """Return up to ``most`` tokens that may come next, given the prompt's runs."""
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
    """Take away, in place, the probability of tokens that grammars do not allow.

    Args:
        logits: (rows, vocabulary).
        places: Rows that have a grammar.
        allowed: The tokens that each of these may have.
    """
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
    """Sample a token per row by inversion of the cumulative distribution.

    Args:
        logits: (rows, vocabulary).
        temperatures: (rows,); 0 takes the likeliest token.
        uniforms: (rows,), in [0, 1).

    Returns:
        Tokens, and their natural log-probabilities under the distribution they were
        sampled from. A greedy token's is that of temperature 1.
    """
    greedy = temperatures == 0
    scale = torch.where(greedy, 1.0, temperatures)
    log_probabilities = torch.log_softmax(logits.float() / scale[:, None], dim=-1)
    cumulative = log_probabilities.exp().cumsum(-1)
    # The factor keeps rounding from reaching the total, past the last token.
    targets = uniforms * cumulative[:, -1] * (1 - 1e-6)
    tokens = torch.searchsorted(cumulative, targets[:, None], right=True)
    if bool(greedy.any()):
        tokens = torch.where(greedy[:, None], logits.argmax(-1, keepdim=True), tokens)
    chosen = log_probabilities.gather(-1, tokens)
    return tokens[:, 0].tolist(), chosen[:, 0].tolist()
