"""PolicyLoss: compute the policy-gradient loss and its gradients, by micro-batch.

For each trained token, r is its current probability divided by its probability at
sampling, and A is the advantage of its model call. The loss has three parts:

- PPO's clipped objective (arXiv:1707.06347), ``-min(r A, clip(r, 1 - low, 1 + high)
  A)``, but at most ``-3 A`` for negative A (the dual clip of arXiv:1912.09729),
- minus an entropy bonus,
- plus an optional penalty on the distance from a reference policy
  (:func:`k3`).

The loss is averaged over the trained tokens of the whole batch. A mean within each
sequence would favour short successful sequences (Dr. GRPO, arXiv:2503.20783). For
imitated examples the loss is ``-A log p``.

A sequence whose mean ratio, ``exp(mean log r)`` over its trained tokens (GSPO,
arXiv:2507.18071), is outside of ``1 / limit`` to ``limit`` adds nothing to the loss:
other weights sampled it, so its gradient is not valid for the current weights.
DeepSeek-V3.2 (arXiv:2512.02556) masks such sequences only on one side and for negative
A; this loss masks on both sides and for every A.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from agentgym.engines.base import CLIP_BOUND, TrainingSequence
from agentgym.engines.local.attention import Kept
from agentgym.engines.local.covered import CoveredTokens, GrammarMasks
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.prefix_tree import (
    Forest,
    PrefixTree,
    TreeLayout,
    plant,
)
from agentgym.engines.memory import PREDICTED_FLOATS, micro_batch
from agentgym.errors import EngineError

_MEASURED_TREES, _LEAST_APART = 4, 5
"""An update's change is measured on so many trees at most, and on one in five."""
_CACHED = 2**20
"""Number of probabilities (4 MB) that a processor's cache holds."""


class ReferencePolicy:
    """The model as it was before training, for the KL penalty in the loss.

    If an adapter is trained, this is the same model with the adapter disabled. If all
    weights are trained, it is a copy of the initial weights. ``coefficient`` is the
    weight of the penalty.
    """

    def __init__(self, loaded: LoadedModel, coefficient: float) -> None:
        self.coefficient = coefficient
        self._loaded = loaded
        if loaded.adapter is None:
            held = copy.deepcopy(loaded.model).requires_grad_(False)
            self._loaded = replace(loaded, model=held)

    @contextmanager
    def model(self) -> Iterator[LoadedModel]:
        """Yield the reference model; do not use the trained model within the block."""
        with torch.no_grad():
            if self._loaded.adapter is None:
                yield self._loaded
            else:
                with self._loaded.adapter.disable_adapter():
                    yield self._loaded


def k3(now: Tensor, reference: Tensor) -> Tensor:
    """Return the k3 estimate of the distance from a reference policy, in nats.

    It is ``r - 1 - log r``, where r is the reference's probability of a sampled token
    divided by the policy's. This estimate of the KL divergence is unbiased and never
    negative (http://joschu.net/blog/kl-approx.html). GRPO uses it (arXiv:2402.03300).
    Both arguments are log-probabilities of tokens, (tokens,).
    """
    apart = reference - now
    return apart.exp() - 1 - apart


class LossSums(NamedTuple):
    """Sums of the loss and of statistics over trained tokens, e.g. of a micro-batch.

    Attributes:
        loss: Policy loss.
        entropy: Entropy of the policy.
        clipped: Number of tokens whose probability ratio was clipped.
        kl: k3 estimates of the distance from the policy at sampling.
        gap: Absolute differences from the log-probabilities at sampling.
        away: k3 estimates of the distance from the reference policy.
        tokens: Number of trained tokens.
    """

    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    gap: float = 0.0
    away: float = 0.0
    tokens: int = 0


@dataclass
class Ratios:
    """Probability ratios of the trained tokens in one update.

    A ratio is the token's probability before the update, divided by its probability at
    sampling.

    Attributes:
        parts: The ratios of each micro-batch.
        far_off: Sequences that the loss left out because of their mean ratio.
        learned: For each ``id(sequence)``, the log-probabilities of its trained tokens
            before the update.
        entropies: For each ``id(sequence)``, the entropy at each trained token.
    """

    parts: list[Tensor] = field(default_factory=list)
    far_off: list[TrainingSequence] = field(default_factory=list)
    learned: dict[int, list[float]] = field(default_factory=dict)
    entropies: dict[int, list[float]] = field(default_factory=dict)

    def statistics(self) -> tuple[float | None, float | None, float | None]:
        """Return three statistics of the ratios; each is None without ratios.

        Returns:
            The 99th percentile, the largest ratio, and the effective share. The share
            is the effective sample size (Kish 1965), ``(sum of ratios)² / sum of
            squares``, divided by the number of tokens; 1 if all ratios are equal.
        """
        if not self.parts:
            return None, None, None
        ordered = torch.cat(self.parts).double().sort().values
        count = len(ordered)
        return (
            float(ordered[math.ceil(0.99 * count) - 1]),
            float(ordered[-1]),
            float(ordered.sum() ** 2 / (count * ordered.square().sum())),
        )


class _Part(NamedTuple):
    """A micro-batch: prefix trees, and the reference policy's log-probabilities.

    ``recomputes`` is whether the backward pass computes the layers of this one again,
    although it does not for the others.
    """

    trees: Sequence[PrefixTree]
    reference: Tensor | None = None
    recomputes: bool = False


class PolicyLoss:
    """Computes the loss of forests, and adds its gradients to the parameters.

    A forest (:class:`.Forest`) is the training sequences of one agent, arranged in
    prefix trees. Its head is the prefix that all these sequences share.

    Args:
        loaded: The model.
        clip: How far the ratio may go below and above 1; None for imitation.
        entropy_coefficient: Weight of the entropy bonus.
        temperature: The sampling temperature.
        limit: Leave out sequences whose mean ratio is beyond this limit; None for no
            limit.
        reference: The reference policy for the KL penalty; None for no penalty.

    Attributes:
        chunk_tokens: Most tokens of a micro-batch; a single larger tree is a
            micro-batch too. 0 makes each sequence a micro-batch: the model cannot
            compute several sequences in one row.
        tree_nodes: Most nodes of a prefix tree. In larger trees, more sequences share a
            prefix, but larger trees take more memory.
        predicted_floats: Most logits in memory at once.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        clip: tuple[float, float] | None,
        entropy_coefficient: float,
        temperature: float,
        limit: float | None = None,
        reference: ReferencePolicy | None = None,
    ) -> None:
        self._loaded = loaded
        self._reference = reference
        self._clip = clip
        self._entropy_coefficient = entropy_coefficient
        self._temperature = temperature
        self._limit = limit
        self._ratios = Ratios()
        self.predicted_floats = PREDICTED_FLOATS
        self.chunk_tokens, self.tree_nodes = micro_batch(loaded.vocabulary)
        if loaded.tree_nodes is not None:
            self.chunk_tokens = self.tree_nodes = loaded.tree_nodes
        if not loaded.traits.is_packed:
            self.chunk_tokens = self.tree_nodes = 0

    def take_ratios(self) -> Ratios | None:
        """Return the ratios collected since the last call; None without ratios."""
        found, self._ratios = self._ratios, Ratios()
        return found if found.parts else None

    def plant(self, sequences: Sequence[TrainingSequence]) -> list[Forest]:
        """Arrange sequences in prefix trees, which store each shared prefix once."""
        return plant(sequences, self.tree_nodes)

    def backward(self, forest: Forest, total: int) -> LossSums:
        """Add the gradients of a forest's loss, divided by ``total``.

        ``total`` is the number of trained tokens in the whole batch. The head (the
        sequences' common prefix) is computed once. Each micro-batch adds gradients to
        the head's keys and values. At the end, one backward pass through the head
        continues with these gradients.

        Raises:
            EngineError: The update was interrupted.
        """
        room = self._loaded.kept_tokens - len(forest.head)
        with self._loaded.speaking(forest.agent), self._loaded.recomputing(room <= 0):
            return self._backward(forest, total, room)

    def _backward(self, forest: Forest, total: int, room: int) -> LossSums:
        parts = list(self._parts(forest, room))
        computed = self._head(self._loaded, forest.head)
        leaves = [tensor.detach().requires_grad_() for tensor in computed]
        trained = (p for _, p in self._loaded.trained_parameters() if p.requires_grad)
        wanted = [*trained, *leaves]
        alone = self._loaded.threads[0] == 1
        each = self._one_by_one if alone else self._side_by_side
        sums = LossSums()
        for part in each(parts, total, leaves, wanted):
            if self._loaded.interrupted.is_set():
                raise EngineError("The update was interrupted; it changed nothing.")
            sums = LossSums(*map(add, sums, part))
        pairs = [
            (tensor, leaf.grad)
            for tensor, leaf in zip(computed, leaves, strict=True)
            if leaf.grad is not None and tensor.requires_grad
        ]
        if pairs:
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        return sums

    def _parts(self, forest: Forest, room: int) -> Iterator[_Part]:
        """Yield micro-batches, last those of trees with at most ``room`` nodes."""
        count = sum(len(tree) > room for tree in forest.trees)  # larger ones are first
        larger = replace(forest, trees=forest.trees[:count])
        fitting = replace(forest, trees=forest.trees[count:])
        chunks = [(trees, room > 0) for trees in larger.chunks(self.chunk_tokens)]
        most = min(self.chunk_tokens, room)
        chunks += [(trees, False) for trees in fitting.chunks(most)]
        if self._reference is None:
            yield from (_Part(trees, None, again) for trees, again in chunks)
            return
        with self._reference.model() as reference:
            head = self._head(reference, forest.head)
            for trees, again in chunks:
                yield _Part(trees, self._forward(reference, trees, head)[1], again)

    def _one_by_one(
        self,
        parts: Sequence[_Part],
        total: int,
        head: list[Tensor],
        wanted: list[Tensor],
    ) -> Iterator[LossSums]:
        """Compute micro-batches one after the other; yield the sums of each.

        The gradients are added to the parameters at once, so they take memory only
        once. The arguments are those of :meth:`_side_by_side`.
        """
        for each in parts:
            with self._loaded.recomputing(each.recomputes):
                objective, part = self._objective(each, head)
            torch.autograd.backward(objective / total, inputs=wanted)
            yield part

    def _side_by_side(
        self,
        parts: Sequence[_Part],
        total: int,
        head: list[Tensor],
        wanted: list[Tensor],
    ) -> Iterator[LossSums]:
        """Compute micro-batches in parallel threads; yield the sums of each.

        Gradients are added in the order of the micro-batches, so that they repeat.

        Args:
            parts: The micro-batches.
            total: The number of trained tokens in the whole batch.
            head: Keys and values of the prefix that all sequences share.
            wanted: The tensors whose gradients are computed.
        """

        def gradients(each: _Part) -> tuple[LossSums, Sequence[Tensor | None]]:
            objective, part = self._objective(each, head)
            found = torch.autograd.grad(objective / total, wanted, allow_unused=True)
            return part, found

        workers, kernels = self._loaded.threads
        with ThreadPoolExecutor(
            workers, "agentgym-loss", torch.set_num_threads, (kernels,)
        ) as pool:
            for part, found in pool.map(gradients, parts):
                for tensor, gradient in zip(wanted, found, strict=True):
                    if tensor.grad is None:
                        tensor.grad = gradient
                    elif gradient is not None:
                        tensor.grad.add_(gradient)
                yield part

    @torch.no_grad()
    def total(self, forest: Forest) -> LossSums:
        """Return the sums of loss and statistics of a forest; compute no gradients."""
        sums = LossSums()
        with self._loaded.speaking(forest.agent):
            head = self._head(self._loaded, forest.head)
            for trees in forest.chunks(self.chunk_tokens):
                sums = LossSums(*map(add, sums, self._objective(_Part(trees), head)[1]))
        return sums

    @torch.no_grad()
    def moved(self, forest: Forest) -> dict[int, list[float]]:
        """Return for each ``id(sequence)`` the change of the policy since sampling.

        The change is the k3 estimate of the KL divergence at each trained token. To
        save time, only a few trees of different sizes are measured.
        """
        trees = forest.trees
        each = max(_LEAST_APART, -(-len(trees) // _MEASURED_TREES))
        some = replace(forest, trees=trees[min(each, len(trees)) // 2 :: each])
        found: dict[int, list[float]] = {}
        with self._loaded.speaking(forest.agent):
            head = self._head(self._loaded, forest.head)
            for trees in some.chunks(self.chunk_tokens):
                covered, now, _ = self._forward(self._loaded, trees, head)
                found |= covered.by_sequence(k3(covered.sampled, now))
        return found

    def _head(self, loaded: LoadedModel, ids: list[int]) -> list[Tensor]:
        """Return keys and values of the head's tokens ``ids``, layer by layer."""
        if not ids:
            return []
        kept, device = Kept(), loaded.device
        loaded.states(
            torch.tensor(ids, device=device),
            torch.arange(len(ids), device=device),
            kept,
        )
        return [tensor for _, pair in sorted(kept.pairs.items()) for tensor in pair]

    def _forward(
        self, loaded: LoadedModel, trees: Sequence[PrefixTree], head: Sequence[Tensor]
    ) -> tuple[CoveredTokens, Tensor, Tensor]:
        """Run a model on trees to predict the tokens that the loss covers (targets).

        Return the targets, their log-probabilities, and the entropy at each.
        """
        device = loaded.device
        starts = accumulate(map(len, trees), initial=0)
        places = [
            start + target.node
            for start, tree in zip(starts, trees, strict=False)
            for target in tree.targets.values()
        ]
        states = loaded.states(
            torch.tensor([token for tree in trees for token in tree.tokens]).to(device),
            torch.tensor([depth for tree in trees for depth in tree.depths]).to(device),
            TreeLayout.of(trees, head) if loaded.traits.is_packed else None,
        ).index_select(0, torch.tensor(places, device=device))
        covered = CoveredTokens.of(trees, device)
        return covered, *self._predict(loaded, states, covered.tokens, covered.held)

    def _objective(
        self, part: _Part, head: Sequence[Tensor]
    ) -> tuple[Tensor, LossSums]:
        """Return a micro-batch's loss, summed over trained tokens, and statistics."""
        covered, now, entropy = self._forward(self._loaded, part.trees, head)
        if self._clip is None or self._limit is None:
            near = now.new_ones(len(covered.sequences))
        else:
            near = covered.near(now, self._limit)
        gain, loss, kept = covered.sums(near)
        if self._clip is None:
            policy = -now * (gain + loss)
            return policy.sum(), LossSums(loss=float(policy.sum().detach()))
        counts = covered.counts
        log_ratio = now - covered.sampled
        ratio = log_ratio.exp()
        low, high = self._clip
        clipped = ratio.clamp(1 - low, 1 + high)
        policy = -(
            torch.minimum(ratio * gain, clipped * gain)
            + torch.maximum(
                torch.minimum(ratio * loss, clipped * loss), CLIP_BOUND * loss
            )
        )
        objective = policy.sum() - self._entropy_coefficient * (entropy * kept).sum()
        away = torch.zeros_like(now)
        if self._reference is not None and part.reference is not None:
            away = k3(now, part.reference)
            objective = objective + self._reference.coefficient * (away * kept).sum()
        with torch.no_grad():
            is_clipped = ratio != clipped
            if objective.requires_grad:
                found = self._ratios
                found.parts.append(ratio.repeat_interleave(counts))
                found.learned.update(covered.by_sequence(now))
                found.entropies.update(covered.by_sequence(entropy))
                is_far = (near == 0).tolist()
                found.far_off += compress(covered.sequences, is_far)
            return objective, LossSums(
                loss=float(policy.sum()),
                entropy=float((entropy * counts).sum()),
                clipped=float((is_clipped * counts).sum()),
                kl=float(((ratio - 1 - log_ratio) * counts).sum()),
                gap=float((log_ratio.abs() * counts).sum()),
                away=float((away * counts).sum()),
                tokens=int(counts.sum()),
            )

    def _predict(
        self, loaded: LoadedModel, states: Tensor, tokens: Tensor, held: GrammarMasks
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each token, and the entropy at its position.

        ``states`` has the last layer's output at the position before each token. The
        logits of a long sequence could take more memory than the model. So they are
        computed in blocks, and computed again in the backward pass.
        """

        def block(
            states: Tensor, tokens: Tensor, held: GrammarMasks
        ) -> tuple[Tensor, Tensor]:
            logits = loaded.predict(states)
            made: tuple[Tensor, Tensor] = TokenStatistics.apply(
                logits, tokens, held, self._temperature
            )
            return made

        most = max(1, self.predicted_floats // self._loaded.vocabulary)
        if len(tokens) <= most:
            return block(states, tokens, held)
        made = [
            checkpoint(block, *part, use_reentrant=False, preserve_rng_state=False)
            for part in zip(
                states.split(most), tokens.split(most), held.split(most), strict=True
            )
        ]
        now, entropy = zip(*made, strict=True)
        return torch.cat(now), torch.cat(entropy)


class TokenStatistics(torch.autograd.Function):
    """The log-probability of a token at each position, and the entropy there.

    On a processor it computes a few positions at a time, whose probabilities stay in
    its cache; with a vocabulary of 150,000, torch's operations one after the other take
    twice as long (docs/benchmarks.md).
    """

    @staticmethod
    def forward(
        context: Any,
        logits: Tensor,
        tokens: Tensor,
        held: GrammarMasks,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies, (positions,) each.

        Args:
            context: Keeps the tensors for :meth:`backward`.
            logits: The model's output, (positions, vocabulary).
            tokens: The token at each position, (positions,).
            held: The tokens that grammars allowed.
            temperature: The sampling temperature.
        """
        rows = _rows_at_once(logits)
        found: list[Tensor] = []
        entropies: list[Tensor] = []
        for part, own, masks in zip(
            logits.split(rows), tokens.split(rows), held.split(rows), strict=True
        ):
            logprobs = _logprobs(part, masks, temperature)
            found.append(logprobs.gather(-1, own[:, None])[:, 0])
            entropies.append(-logprobs.exp().mul_(logprobs).sum(-1))
        entropy = torch.cat(entropies)
        context.save_for_backward(logits, tokens, entropy)
        context.rest = held, temperature
        return torch.cat(found), entropy

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the logits; the other arguments have none.

        With probabilities p, entropy H, and the gradients a and b of the token's
        log-probability and of H, it is ``a (one_hot - p) - b p (log p + H)``, divided
        by the temperature.
        """
        logits, tokens, entropy = context.saved_tensors
        held, temperature = context.rest
        made = torch.empty_like(logits)
        rows = _rows_at_once(logits)
        given = (made, logits, tokens, entropy, *gradients)
        parts = [*(each.split(rows) for each in given), held.split(rows)]
        for out, part, own, spread, for_token, for_entropy, masks in zip(
            *parts, strict=True
        ):
            logprobs = _logprobs(part, masks, temperature)
            probabilities = logprobs.exp()
            total = logprobs.add_(spread[:, None]).mul_(for_entropy[:, None])
            total.add_(for_token[:, None]).mul_(probabilities).neg_()
            total.scatter_add_(-1, own[:, None], for_token[:, None])
            out.copy_(total.div_(temperature))
        return made, None, None, None


def _logprobs(logits: Tensor, held: GrammarMasks, temperature: float) -> Tensor:
    return torch.log_softmax(held.hide(logits.float() / temperature), dim=-1)


def _rows_at_once(logits: Tensor) -> int:
    """Return how many positions to compute at once."""
    if logits.device.type != "cpu":
        return len(logits)
    return max(1, _CACHED // logits.shape[1])
