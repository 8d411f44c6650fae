"""Prefix trees: tokens that several sequences share are computed once.

Rollouts of a group begin alike: the same prompt, often the same first calls and
results. Their sequences are laid out as a tree, one token per node, and a token
attends to its ancestors alone, so the result for each is that of its own sequence.
A tree is made of branches, the runs of nodes that one sequence adds, and attention is
computed branch by branch: what other branches hold is not even looked at.
What all sequences of an update share (system prompt and tools) is cut off as its
head, which is computed once for all trees. Both change nothing about loss or
gradients; a test compares them with the plain computation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise

from agentgym.engines.base import TrainingSequence
from agentgym.engines.local.attention import TreeLayout
from agentgym.engines.local.kv_cache import common_prefix

_SHORTEST_HEAD = 16


@dataclass
class Target:
    """A token that the loss covers, of one or several sequences.

    The clipped objective is linear in the advantage on either side of zero, so the
    advantages of equal tokens after equal prefixes are added up by their sign, if
    they were sampled with the same probability.

    Attributes:
        node: Whose prediction it is: its prefix's last token.
        token: The token.
        logprobs: When sampled, one per occurrence.
        gain: Sum of the positive advantages.
        loss: Sum of the negative ones.
    """

    node: int
    token: int
    logprobs: list[float] = field(default_factory=list)
    gain: float = 0.0
    loss: float = 0.0


@dataclass(frozen=True)
class Branch:
    """The nodes that one sequence adds to a tree; each follows the one before it.

    Attributes:
        nodes: Where they are.
        before: Runs of nodes from the head to the branch.
    """

    nodes: range
    before: list[range]


class PrefixTree:
    """Sequences of one group, shared prefixes once.

    Args:
        offset: Length of the head, which is not in the tree.

    Attributes:
        tokens: Of each node, branch after branch; parents come before children.
        depths: Position of each in the sequence, head included.
        branches: In the order of their nodes.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._children: dict[tuple[int, int], int] = {}
        self._targets: dict[tuple[int, int, float], Target] = {}
        self._branch_of: list[int] = []
        self.tokens: list[int] = []
        self.depths: list[int] = []
        self.branches: list[Branch] = []

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def targets(self) -> list[Target]:
        """The tokens that the loss covers."""
        return list(self._targets.values())

    def add(self, sequence: TrainingSequence) -> None:
        """Add a sequence up to its last trained token."""
        trained = {token.position: token for token in sequence.trained}
        node, start, parent = -1, len(self), -1
        for position in range(self._offset, max(trained) + 1):
            token = sequence.ids[position]
            if position in trained:
                logprob = trained[position].logprob
                key = (node, token, round(logprob, 3))
                target = self._targets.setdefault(key, Target(node, token))
                advantage = trained[position].advantage
                target.logprobs.append(logprob)
                target.gain += max(0.0, advantage)
                target.loss += min(0.0, advantage)
            if position < max(trained):
                node = self._child(node, token, position)
                if node < start:
                    parent = node
        if len(self) > start:
            self.branches.append(Branch(range(start, len(self)), self._path(parent)))

    def _path(self, node: int) -> list[range]:
        """Return the runs of nodes from the head to ``node`` and with it."""
        if node < 0:
            return []
        branch = self.branches[self._branch_of[node]]
        return [*branch.before, range(branch.nodes.start, node + 1)]

    def _child(self, node: int, token: int, position: int) -> int:
        key = (node, token)
        if key not in self._children:
            self._children[key] = len(self.tokens)
            self._branch_of.append(len(self.branches))
            self.tokens.append(token)
            self.depths.append(position)
        return self._children[key]


@dataclass(frozen=True)
class Forest:
    """Trees that share a head.

    Attributes:
        head: Tokens that all sequences begin with, possibly none.
        trees: What follows, large trees first, so that threads end together.
    """

    head: list[int]
    trees: list[PrefixTree]

    def chunks(self, tokens: int) -> Iterator[list[PrefixTree]]:
        """Yield trees in chunks of at most ``tokens`` nodes, or one larger tree."""
        chunk: list[PrefixTree] = []
        for tree in self.trees:
            if chunk and sum(map(len, chunk)) + len(tree) > tokens:
                yield chunk
                chunk = []
            chunk.append(tree)
        if chunk:
            yield chunk


def lay_out(trees: Sequence[PrefixTree], head: int) -> TreeLayout:
    """Say who attends to whom when trees are packed into one row.

    Args:
        trees: In their order in the row.
        head: Length of the head, whose keys come first and which all attend to.
    """
    pieces, queries, seen = [head], [], []
    for tree in trees:
        paths = [[*branch.before, branch.nodes] for branch in tree.branches]
        runs = [run for path in paths for run in path]
        cuts = sorted({edge for run in runs for edge in (run.start, run.stop)})
        number = {cut: len(pieces) + index for index, cut in enumerate(cuts)}
        for path in paths:
            queries.append(len(path[-1]))
            seen.append([0, *(number[c] for run in path for c in cuts if c in run)])
        pieces += [end - start for start, end in pairwise(cuts)]
    return TreeLayout(pieces, queries, seen)


def plant(
    sequences: Sequence[TrainingSequence], most_nodes: int = 1536
) -> list[Forest]:
    """Lay sequences out: a forest per agent of a team, a tree per group.

    Args:
        sequences: Of one update.
        most_nodes: Of a tree; a group that has more gets several.
    """
    agents: dict[str, list[TrainingSequence]] = {}
    for sequence in sequences:
        agents.setdefault(sequence.agent, []).append(sequence)
    return [_forest(of_agent, most_nodes) for of_agent in agents.values()]


def _forest(sequences: Sequence[TrainingSequence], most_nodes: int) -> Forest:
    shared = reduce(
        lambda ids, sequence: ids[: common_prefix(ids, sequence.ids)],
        sequences,
        sequences[0].ids,
    )
    # The first trained token is predicted by a node, so the head ends before it.
    first = min(s.trained[0].position for s in sequences)
    head = shared[: max(0, first - 1)]
    if len(head) < _SHORTEST_HEAD:
        head = []
    groups: dict[int, list[TrainingSequence]] = {}
    for sequence in sequences:
        groups.setdefault(sequence.group, []).append(sequence)
    trees: list[PrefixTree] = []
    for group in groups.values():
        tree = PrefixTree(len(head))
        trees.append(tree)
        for sequence in sorted(group, key=lambda s: s.ids):  # shared prefixes adjacent
            if len(tree) and len(tree) + len(sequence.ids) - len(head) > most_nodes:
                tree = PrefixTree(len(head))
                trees.append(tree)
            tree.add(sequence)
    return Forest(head, sorted(trees, key=len, reverse=True))
