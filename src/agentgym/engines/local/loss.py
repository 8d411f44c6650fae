"""The policy-gradient loss and its gradients, micro-batch by micro-batch.

Per trained token, with r the ratio of the token's probability now to when it was
sampled and A the advantage of its model call, the loss is PPO's clipped objective
(arXiv:1707.06347), ``-min(r A, clip(r, 1 - c, 1 + c) A)``, minus an entropy bonus,
averaged over the trained tokens of the whole batch, not within sequences (Dr. GRPO,
arXiv:2503.20783: a mean within sequences favours short ones when they succeed).
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

from agentgym.engines.local.loading import LoadedModel, hidden_states
from agentgym.engines.local.prefix_tree import Forest, PrefixTree, TreeLayout

_VOCABULARY_FLOATS = 2**27


class LossSums(NamedTuple):
    """Sums over trained tokens: policy loss, entropy, clipped ones, and k3."""

    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class PolicyLoss:
    """Computes the loss of forests and adds its gradients to the parameters.

    Attributes:
        loaded: The model.
        clip: Range of the ratio beyond which it is clipped.
        entropy_coefficient: Weight of the entropy bonus.
        temperature: That the tokens were sampled with.
        chunk_tokens: Most tokens of a micro-batch, but for a tree that has more.
    """

    loaded: LoadedModel
    clip: float
    entropy_coefficient: float
    temperature: float
    chunk_tokens: int = 1024

    def backward(self, forest: Forest, total: int) -> LossSums:
        """Add the gradients of a forest's share of the loss.

        The head is computed once; each micro-batch leaves its gradients at the
        head's keys and values, and they go back through it once at the end.

        Args:
            forest: Sequences that share a head.
            total: Trained tokens of the whole batch, over which the loss is a mean.
        """
        computed = self._head(forest.head)
        leaves = [tensor.detach().requires_grad_() for tensor in computed]
        wanted = [*(p for _, p in self.loaded.trained_parameters()), *leaves]

        def gradients(
            trees: Sequence[PrefixTree],
        ) -> tuple[LossSums, Sequence[Tensor | None]]:
            objective, part = self._objective(trees, leaves)
            found = torch.autograd.grad(objective / total, wanted, allow_unused=True)
            return part, found

        sums = LossSums()
        workers, kernels = self.loaded.threads
        with ThreadPoolExecutor(
            workers, "agentgym-loss", torch.set_num_threads, (kernels,)
        ) as pool:
            # Added up in the order of the chunks, whichever is done first.
            for part, found in pool.map(gradients, forest.chunks(self._chunk)):
                sums = LossSums(*map(add, sums, part))
                for tensor, gradient in zip(wanted, found, strict=True):
                    if tensor.grad is None:
                        tensor.grad = gradient
                    elif gradient is not None:
                        tensor.grad.add_(gradient)
        pairs = [
            (tensor, leaf.grad)
            for tensor, leaf in zip(computed, leaves, strict=True)
            if leaf.grad is not None and tensor.requires_grad
        ]
        if pairs:
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        return sums

    @torch.no_grad()
    def measure(self, forest: Forest) -> LossSums:
        """Return the sums of one micro-batch from the middle of a forest."""
        chunks = list(forest.chunks(self._chunk))
        trees = chunks[len(chunks) // 2]
        return self._objective(trees, self._head(forest.head))[1]

    @property
    def tree_nodes(self) -> int:
        """Most nodes of a tree: larger ones share more, and take more memory."""
        most = _VOCABULARY_FLOATS // self.loaded.vocabulary
        return max(self.chunk_tokens, min(3 * self.chunk_tokens // 2, most))

    @property
    def _chunk(self) -> int:
        most = _VOCABULARY_FLOATS // self.loaded.vocabulary
        return max(512, min(self.chunk_tokens, most))

    def _head(self, ids: list[int]) -> list[Tensor]:
        """Return a head's keys and values, layer after layer, with their graph."""
        if not ids:
            return []
        cache = DynamicCache()
        tokens = torch.tensor([ids], device=self.loaded.device)
        positions = torch.arange(len(ids), device=self.loaded.device)[None]
        hidden_states(self.loaded.model, tokens, positions, cache=cache)
        return [tensor for keys, values, *_ in cache for tensor in (keys, values)]

    def _objective(
        self, trees: Sequence[PrefixTree], head: Sequence[Tensor]
    ) -> tuple[Tensor, LossSums]:
        """Return the summed objective of some trees, and its parts."""
        targets = [target for tree in trees for target in tree.targets]

        def of_targets(values: Iterable[float]) -> Tensor:
            return torch.tensor(list(values), device=self.loaded.device)

        tokens = of_targets(t.token for t in targets)
        counts = of_targets(float(len(t.logprobs)) for t in targets)
        sampled = of_targets(sum(t.logprobs) / len(t.logprobs) for t in targets)
        gain, loss = (
            of_targets(t.gain for t in targets),
            of_targets(t.loss for t in targets),
        )

        logits = self._logits(trees, head).float()
        logprobs = torch.log_softmax(logits / self.temperature, dim=-1)
        now = logprobs.gather(-1, tokens[:, None])[:, 0]
        log_ratio = now - sampled
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        policy = -(
            torch.minimum(ratio * gain, clipped * gain)
            + torch.minimum(ratio * loss, clipped * loss)
        )
        entropy = -(logprobs.exp() * logprobs).sum(-1) * counts
        objective = policy.sum() - self.entropy_coefficient * entropy.sum()
        with torch.no_grad():
            is_clipped = (ratio - 1).abs() > self.clip
            return objective, LossSums(
                loss=float(policy.sum()),
                entropy=float(entropy.sum()),
                clipped=float((is_clipped * counts).sum()),
                kl=float(((ratio - 1 - log_ratio) * counts).sum()),
                tokens=int(counts.sum()),
            )

    def _logits(self, trees: Sequence[PrefixTree], head: Sequence[Tensor]) -> Tensor:
        """Return the logits before each target, tree after tree."""
        device = self.loaded.device
        ids = [token for tree in trees for token in tree.tokens]
        depths = [depth for tree in trees for depth in tree.depths]
        starts = accumulate(map(len, trees), initial=0)
        places = [
            start + target.node
            for start, tree in zip(starts, trees, strict=False)
            for target in tree.targets
        ]
        states = hidden_states(
            self.loaded.model,
            torch.tensor([ids], device=device),
            torch.tensor([depths], device=device),
            layout=TreeLayout.of(trees, head),
        )[0]
        logits: Tensor = self.loaded.head(
            states.index_select(0, torch.tensor(places, device=device))
        )
        return logits
