"""Prefix trees: compute a prefix that several sequences share only once.

Rollouts of a group have the same prompt, and often the same first calls and results.
Their sequences form a tree with one token per node. A token attends only to its
ancestors, so its result is the same as in its own sequence. A tree consists of
branches, the nodes that one sequence adds. Attention is computed branch by branch. The
prefix of all sequences (system prompt and tools) is the head, computed once for all
trees. Loss and gradients do not change; a test checks this.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby, pairwise

import torch
from torch import Tensor

from agentgym.engines.base import Allowed, TrainedToken, TrainingSequence
from agentgym.engines.local.attention import Layout, attend_masked
from agentgym.engines.tokens.rendering import common_prefix

_SHORTEST_HEAD = 16


@dataclass
class Target:
    """A token that the loss covers, in one or several sequences of a tree.

    Sequences share a target if the token, its prefix, its probability at sampling and
    the allowed tokens are equal. Their positive advantages are added up, and so are the
    negative ones: the clipped objective is linear in the advantage on each side of 0.

    Attributes:
        node: The node that predicts the token: the last token of its prefix.
        token: The token id.
        allowed: The tokens that could be sampled at this position; None for all.
        occurrences: For each sequence with this target: the sequence's index in the
            tree, the log-probability at sampling, and the advantage.
    """

    node: int
    token: int
    allowed: Allowed | None = None
    occurrences: list[tuple[int, float, float]] = field(default_factory=list)


class PrefixTree:
    """Sequences of one group, with shared prefixes stored once.

    Args:
        offset: Length of the head (the prefix of the sequences of all trees), which is
            not part of the tree.

    Attributes:
        sequences: The added sequences.
        targets: The tokens that the loss covers.
        tokens: Token of each node, branch after branch; parents come before children.
        depths: Position of each node's token in its sequence, the head included.
        branches: For each branch (the nodes that one sequence added), the ranges of
            nodes on the path from the head. The branch's own nodes are the last range.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._children: dict[tuple[int, int], int] = {}
        self.sequences: list[TrainingSequence] = []
        self.targets: dict[tuple[int, int, float, bytes], Target] = {}
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self.branches: list[list[range]] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, sequence: TrainingSequence) -> None:
        """Add a sequence; ignore the tokens after its last trained token."""
        trained = {token.position: token for token in sequence.trained}
        node, parent, start, end = -1, -1, len(self), max(trained)
        for position in range(self._offset, end + 1):
            token = sequence.ids[position]
            if position in trained:
                self._aim(node, token, trained[position])
            if position < end:
                node = self._children.setdefault((node, token), len(self))
                if node < start:
                    parent = node
                else:
                    self.tokens.append(token)
                    self.depths.append(position)
        self.sequences.append(sequence)
        if len(self) > start:
            self.branches.append([*self._path(parent), range(start, len(self))])

    def count_new(self, sequence: TrainingSequence) -> int:
        """Return the number of nodes that :meth:`add` would create for a sequence."""
        node, end = -1, max(token.position for token in sequence.trained)
        for position in range(self._offset, end):
            found = self._children.get((node, sequence.ids[position]))
            if found is None:
                return end - position
            node = found
        return 0

    def _aim(self, node: int, token: int, trained: TrainedToken) -> None:
        bits = trained.allowed.bits if trained.allowed else b""
        key = (node, token, round(trained.logprob, 3), bits)
        target = self.targets.setdefault(key, Target(node, token, trained.allowed))
        own = len(self.sequences)
        target.occurrences.append((own, trained.logprob, trained.advantage))

    def _path(self, node: int) -> list[range]:
        """Return the ranges of nodes on the path from the tree's start to ``node``."""
        for *before, own in self.branches:
            if node in own:
                return [*before, range(own.start, node + 1)]
        return []


@dataclass(frozen=True)
class TreeLayout(Layout):
    """Prefix trees packed into one row. A branch attends to its ancestors and itself.

    A branch is the nodes that one sequence adds to a tree. The row is cut into pieces,
    so that each branch attends to whole pieces.

    Attributes:
        pieces: Lengths of the pieces, in order.
        queries: Lengths of the branches, in order.
        seen: For each branch, the numbers of the pieces that it attends to, in order;
            its own is the last. 0 is the head (the prefix of all trees), and 1 is the
            first piece.
        head: The head's keys and values, layer by layer; empty without a head.
        masks: Causal masks by shape, which all layers share.
    """

    pieces: list[int]
    queries: list[int]
    seen: list[list[int]]
    head: Sequence[Tensor] = ()
    masks: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, trees: Sequence[PrefixTree], head: Sequence[Tensor]) -> "TreeLayout":
        """Return the layout of ``trees``, packed in this order."""
        made = cls([], [], [], head)
        for tree in trees:
            runs = [run for path in tree.branches for run in path]
            cuts = sorted({edge for run in runs for edge in (run.start, run.stop)})
            number = {cut: at for at, cut in enumerate(cuts, 1 + len(made.pieces))}
            for path in tree.branches:
                seen = (number[c] for run in path for c in cuts if c in run)
                made.seen.append([0, *seen])
                made.queries.append(len(path[-1]))
            made.pieces.extend(end - start for start, end in pairwise(cuts))
        return made

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Compute attention in one layer, branch by branch."""
        head = self.head[2 * layer :][:2] or (key[:, :, :0], value[:, :, :0])
        keys = [head[0], *key.split(self.pieces, 2)]
        values = [head[1], *value.split(self.pieces, 2)]
        found = []
        for branch, seen in zip(query.split(self.queries, 2), self.seen, strict=True):
            before = torch.cat([keys[piece] for piece in seen], 2)
            hidden = self._mask(branch, before.shape[2])
            after = torch.cat([values[piece] for piece in seen], 2)
            found.append(attend_masked(branch, before, after, hidden, scale))
        return torch.cat(found, 2).transpose(1, 2)

    def _mask(self, branch: Tensor, total: int) -> Tensor:
        """Return the causal mask for a branch that attends to ``total`` tokens."""
        new = branch.shape[2]
        if (new, total) not in self.masks:
            hidden = branch.new_full((new, total), -torch.inf)
            self.masks[new, total] = hidden.triu_(total - new + 1)
        return self.masks[new, total]


@dataclass(frozen=True)
class Forest:
    """The training sequences of one agent, in prefix trees with a common head."""

    head: list[int]
    trees: list[PrefixTree]
    agent: str

    def chunks(self, tokens: int) -> Iterator[list[PrefixTree]]:
        """Yield the trees in lists that have at most ``tokens`` nodes together."""
        chunk: list[PrefixTree] = []
        for tree in self.trees:
            if chunk and sum(map(len, chunk)) + len(tree) > tokens:
                yield chunk
                chunk = []
            chunk.append(tree)
        if chunk:
            yield chunk


def plant(sequences: Sequence[TrainingSequence], most_nodes: int) -> list[Forest]:
    """Return for each agent of a team a forest with one prefix tree per group.

    A group (the attempts at one task) gets several trees if one tree would have more
    than ``most_nodes`` nodes. With 0, each sequence gets its own tree, and the forest
    has no head: the model cannot compute several sequences in one row.
    """
    agents: dict[str, list[TrainingSequence]] = {}
    for sequence in sequences:
        agents.setdefault(sequence.agent, []).append(sequence)
    return [_forest(found, most_nodes) for found in agents.values()]


def _forest(sequences: Sequence[TrainingSequence], most_nodes: int) -> Forest:
    head = _head(sequences) if most_nodes else []
    trees: list[PrefixTree] = []
    # Groups one after the other; shared prefixes adjacent within each.
    ordered = sorted(sequences, key=lambda s: (s.group, s.ids))
    for _, group in groupby(ordered, key=lambda s: s.group):
        trees.append(PrefixTree(len(head)))
        for sequence in group:
            tree = trees[-1]
            if tree.sequences and (
                not most_nodes or len(tree) + tree.count_new(sequence) > most_nodes
            ):
                trees.append(PrefixTree(len(head)))
            trees[-1].add(sequence)
    # Large trees first, so that threads end together.
    return Forest(head, sorted(trees, key=len, reverse=True), sequences[0].agent)


def _head(sequences: Sequence[TrainingSequence]) -> list[int]:
    """Return the prefix that all sequences share; [] if it is too short to matter.

    It ends before the first token whose output predicts a trained token.
    """
    shared = reduce(
        lambda ids, sequence: ids[: common_prefix(ids, sequence.ids)],
        sequences,
        sequences[0].ids,
    )
    # A node predicts the first trained token, so the head ends before it.
    first = min(s.trained[0].position for s in sequences)
    head = shared[: max(0, first - 1)]
    return head if len(head) >= _SHORTEST_HEAD else []
