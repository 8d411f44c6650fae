"""Build tensors of the tokens that the loss covers, with the masks of grammars."""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from torch import Tensor

from agentgym.engines.base import TrainingSequence
from agentgym.engines.local.prefix_tree import PrefixTree, Target

_U8 = torch.uint8
_HIDDEN = -1e30


class GrammarMasks(NamedTuple):
    """The tokens that grammars allowed at each target (a token that the loss covers).

    Equal masks are stored only once.

    Attributes:
        masks: The different masks, one bit per vocabulary token, (masks, bytes).
        which: For each target, the index of its mask; -1 if every token was allowed.
    """

    masks: Tensor
    which: Tensor

    @classmethod
    def of(cls, targets: Sequence[Target], device: torch.device) -> Self:
        """Return the masks of ``targets``, on ``device``."""
        number: dict[bytes, int] = {}
        which = [
            number.setdefault(each.allowed.bits, len(number)) if each.allowed else -1
            for each in targets
        ]
        masks = torch.empty(0, 1, dtype=_U8)
        if number:
            bits = torch.frombuffer(bytearray(b"".join(number)), dtype=_U8)
            masks = bits.reshape(len(number), -1)
        return cls(masks.to(device), torch.tensor(which, device=device))

    def split(self, most: int) -> list[Self]:
        """Split the targets into parts of at most ``most``; return the parts' masks."""
        return [type(self)(self.masks, part) for part in self.which.split(most)]

    @property
    def is_any(self) -> bool:
        """Whether at least one target has a grammar."""
        return len(self.masks) > 0

    def hide(self, scaled: Tensor) -> Tensor:
        """Return logits with a very negative number for each token not allowed."""
        if not self.is_any:
            return scaled
        [rows] = (self.which >= 0).nonzero(as_tuple=True)
        bits = self.masks[self.which[rows]]
        places = torch.arange(8, device=bits.device, dtype=_U8)
        allowed = ((bits[:, :, None] >> places) & 1).flatten(1)[:, : scaled.shape[1]]
        # Not minus infinity: the entropy multiplies it by 0, which would be NaN.
        held = scaled.index_select(0, rows).masked_fill(allowed == 0, _HIDDEN)
        return scaled.index_copy(0, rows, held)


class CoveredTokens(NamedTuple):
    """Tensors of the tokens that the loss covers in one or more prefix trees.

    A target is a token that the loss covers. Several sequences may share a target; each
    of them is an occurrence of the target.

    Attributes:
        tokens: For each target, its token id.
        held: For each target, the tokens that its grammar allowed.
        counts: For each target, its number of occurrences.
        sampled: For each target, the mean log-probability at sampling.
        nodes: For each target, the index of the tree node that predicts the target.
        target: For each occurrence, the index of its target.
        sequence: For each occurrence, the index of its sequence in ``sequences``.
        logprob: For each occurrence, the log-probability at sampling.
        advantage: For each occurrence, its advantage.
        sequences: The sequences of all trees.
    """

    tokens: Tensor
    held: GrammarMasks
    counts: Tensor
    sampled: Tensor
    nodes: Sequence[int]
    target: Tensor
    sequence: Tensor
    logprob: Tensor
    advantage: Tensor
    sequences: Sequence[TrainingSequence]

    @classmethod
    def of(cls, trees: Sequence[PrefixTree], device: torch.device) -> Self:
        """Build the tensors for one or more trees."""
        targets = [target for tree in trees for target in tree.targets.values()]
        before = accumulate((len(tree.sequences) for tree in trees), initial=0)
        first = [
            b for b, tree in zip(before, trees, strict=False) for _ in tree.targets
        ]
        target, sequence, logprob, advantage = torch.tensor(
            [
                (number, first[number] + own, logprob, advantage)
                for number, each in enumerate(targets)
                for own, logprob, advantage in each.occurrences
            ],
            dtype=torch.float64,
        ).unbind(1)
        which = target.long()
        counts = torch.bincount(which, minlength=len(targets))
        sampled = torch.zeros(len(targets), dtype=torch.float64)
        sampled.index_add_(0, which, logprob)
        return cls(
            torch.tensor([each.token for each in targets], device=device),
            GrammarMasks.of(targets, device),
            counts.to(device),
            (sampled / counts).float().to(device),
            [each.node for each in targets],
            which.to(device),
            sequence.long().to(device),
            logprob.float().to(device),
            advantage.float().to(device),
            [each for tree in trees for each in tree.sequences],
        )

    def near(self, now: Tensor, limit: float) -> Tensor:
        """Return 1 for each sequence whose mean ratio is within the limits, else 0.

        A ratio is a token's current probability divided by its probability at sampling.
        The limits of the geometric mean are ``1 / limit`` and ``limit``. ``now`` has
        the current log-probability of each target.
        """
        apart = now.detach().index_select(0, self.target) - self.logprob
        sums = torch.zeros(len(self.sequences), 2, device=now.device)
        sums.index_add_(
            0, self.sequence, torch.stack([apart, apart.new_ones(len(apart))], 1)
        )
        mean = sums[:, 0] / sums[:, 1]
        return (~(mean.abs() > math.log(limit))).float()

    def by_sequence(self, of_targets: Tensor) -> dict[int, list[float]]:
        """Return for each ``id(sequence)`` the values of its targets, in order."""
        found: list[list[tuple[int, float]]] = [[] for _ in self.sequences]
        values = of_targets.detach().tolist()
        for number, target in zip(
            self.sequence.tolist(), self.target.tolist(), strict=True
        ):
            found[number].append((self.nodes[target], values[target]))
        # A node has a higher number than the nodes before it in a sequence.
        return {
            id(sequence): [value for _, value in sorted(own)]
            for sequence, own in zip(self.sequences, found, strict=True)
        }

    def sums(self, near: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return for each target the sums over its occurrences in some sequences."""
        kept = near.index_select(0, self.sequence)
        weighed = kept * self.advantage
        parts = torch.stack([weighed.clamp(min=0), weighed.clamp(max=0), kept], 1)
        found = parts.new_zeros(len(self.tokens), 3)
        gain, loss, counts = found.index_add_(0, self.target, parts).unbind(1)
        return gain, loss, counts
