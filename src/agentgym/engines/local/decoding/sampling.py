"""Sample a response's next tokens, and draft several of them.

Drafts are guesses of a response's next tokens, which one forward pass then checks:
speculative decoding (Leviathan et al. 2023, https://arxiv.org/abs/2211.17192) with the
conversation so far as the draft model (prompt lookup), since a tool call mostly repeats
words of the prompt. A wrong guess costs a little arithmetic and changes nothing: each
token is sampled as without drafts, from the same random number.
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
"""The token that last followed each run of tokens."""


def runs_of(ids: Sequence[int]) -> Runs:
    """Return the token after each run of three tokens in a prompt."""
    return dict(zip(zip(ids, ids[1:], ids[2:], strict=False), ids[3:], strict=False))


class Drafter:
    """Remembers responses, and drafts new ones from them.

    Runs of eight tokens predict best, then runs of four, then runs of three in the
    response's own prompt.
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}

    def learn(self, prompt: Sequence[int], response: Sequence[int]) -> None:
        """Remember a complete response."""
        if len(self._after) > _MOST_RUNS:
            self._after.clear()
        ids = (*prompt[-_LONG:], *response)
        for end in range(len(ids) - len(response), len(ids)):
            self._after[ids[max(0, end - _LONG) : end]] = ids[end]
            self._after[ids[max(0, end - _SHORT) : end]] = ids[end]

    def draft(
        self, prompt: Sequence[int], response: Sequence[int], own: Runs, most: int
    ) -> list[int]:
        """Return up to ``most`` likely next tokens; ``own`` are the prompt's runs."""
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
    """Mask, in place, the logits of tokens that grammars do not allow.

    Args:
        logits: (rows, vocabulary).
        places: Indices of the rows with a grammar.
        allowed: The allowed tokens of each of these rows.
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
        temperatures: (rows,); 0 takes the most likely token.
        uniforms: (rows,), in [0, 1).

    Returns:
        Tokens, and their natural log-probabilities under the sampling distribution;
        for greedy tokens, the distribution at temperature 1.
    """
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
