"""The policy-gradient loss and its gradients, micro-batch by micro-batch.

Per trained token, with r the ratio of the token's probability now to when it was
sampled and A the advantage of its model call, the loss is PPO's clipped objective
(arXiv:1707.06347), ``-min(r A, clip(r, 1 - c, 1 + c) A)``, minus an entropy bonus,
averaged over the trained tokens of the whole batch, not within sequences (Dr. GRPO,
arXiv:2503.20783: a mean within sequences favours short ones when they succeed).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from agentgym.engines.local.loading import LoadedModel
from agentgym.engines.local.prefix_tree import Forest, PrefixTree, Target, lay_out

_VOCABULARY_FLOATS = 2**27


@dataclass(frozen=True)
class LossSums:
    """Sums over trained tokens: policy loss, entropy, clipped ones, and k3."""

    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0
    tokens: int = 0

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(
            self.loss + other.loss,
            self.entropy + other.entropy,
            self.clipped + other.clipped,
            self.kl + other.kl,
            self.tokens + other.tokens,
        )


@dataclass(frozen=True)
class PolicyLoss:
    """Computes the loss of forests and adds its gradients to the parameters.

    Attributes:
        loaded: The model.
        clip: Range of the ratio beyond which it is clipped.
        entropy_coefficient: Weight of the entropy bonus.
        temperature: That the tokens were sampled with.
        chunk_tokens: Most tokens of a micro-batch, but for a tree that has more.
        workers: Threads that compute micro-batches side by side, each with kernels of
            one thread: for a small model that wastes less than kernels of several.
    """

    loaded: LoadedModel
    clip: float
    entropy_coefficient: float
    temperature: float
    chunk_tokens: int = 1024
    workers: int = 1

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
        parameters: list[Tensor] = [p for _, p in self.loaded.trained_parameters()]

        def gradients(
            trees: Sequence[PrefixTree],
        ) -> tuple[LossSums, Sequence[Tensor | None]]:
            objective, part = self._objective(trees, leaves)
            return part, torch.autograd.grad(
                objective / total, parameters + leaves, allow_unused=True
            )

        sums = LossSums()
        with _threads(self.workers) as pool:
            # Added up in the order of the chunks, whichever is done first.
            for part, found in pool.map(gradients, forest.chunks(self._chunk())):
                sums += part
                for tensor, gradient in zip(parameters + leaves, found, strict=True):
                    _accumulate(tensor, gradient)
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
        chunks = list(forest.chunks(self._chunk()))
        trees = chunks[len(chunks) // 2]
        return self._objective(trees, self._head(forest.head))[1]

    @property
    def tree_nodes(self) -> int:
        """Most nodes of a tree: larger ones share more, and take more memory."""
        most = _VOCABULARY_FLOATS // self.loaded.vocabulary
        return max(self.chunk_tokens, min(3 * self.chunk_tokens // 2, most))

    def _chunk(self) -> int:
        most = _VOCABULARY_FLOATS // self.loaded.vocabulary
        return max(512, min(self.chunk_tokens, most))

    def _head(self, ids: Sequence[int]) -> list[Tensor]:
        """Return the head's keys and values, layer by layer, with their graph."""
        if not ids:
            return []
        device = self.loaded.device
        cache = DynamicCache()
        tokens = torch.tensor([list(ids)], device=device)
        positions = torch.arange(len(ids), device=device)[None]
        self.loaded.hidden(tokens, positions, None, cache)
        found: list[Tensor] = []
        for layer in cache.layers:
            assert isinstance(layer, DynamicLayer)
            assert layer.keys is not None
            assert layer.values is not None
            found += [layer.keys, layer.values]
        return found

    def _objective(
        self, trees: Sequence[PrefixTree], head: Sequence[Tensor]
    ) -> tuple[Tensor, LossSums]:
        """Return the summed objective of some trees, and its parts."""
        device = self.loaded.device
        logits, flat = self._logits(trees, head)
        tokens = torch.tensor([t.token for t in flat], device=device)
        counts = torch.tensor([float(len(t.logprobs)) for t in flat], device=device)
        sampled = [sum(t.logprobs) / len(t.logprobs) for t in flat]
        gain = torch.tensor([t.gain for t in flat], device=device)
        loss = torch.tensor([t.loss for t in flat], device=device)

        logprobs = torch.log_softmax(logits.float() / self.temperature, dim=-1)
        now = logprobs.gather(-1, tokens[:, None])[:, 0]
        log_ratio = now - torch.tensor(sampled, device=device)
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

    def _logits(
        self, trees: Sequence[PrefixTree], head: Sequence[Tensor]
    ) -> tuple[Tensor, list[Target]]:
        """Run the model over trees; return logits before each target, and targets."""
        device = self.loaded.device
        cache = None
        if head:
            pairs = zip(head[::2], head[1::2], strict=True)
            cache = Cache(layers=[_HeadLayer(k, v) for k, v in pairs])
        ids = [token for tree in trees for token in tree.tokens]
        depths = [depth for tree in trees for depth in tree.depths]
        states = self.loaded.hidden(
            torch.tensor([ids], device=device),
            torch.tensor([depths], device=device),
            None,
            cache,
            layout=lay_out(trees, head[0].shape[2] if head else 0),
        )
        starts = accumulate(map(len, trees), initial=0)
        flat = [target for tree in trees for target in tree.targets]
        places = [
            start + target.node
            for start, tree in zip(starts, trees, strict=False)
            for target in tree.targets
        ]
        logits = self.loaded.head(
            states[0].index_select(0, torch.tensor(places, device=device))
        )
        return logits, flat


def _accumulate(tensor: Tensor, gradient: Tensor | None) -> None:
    if gradient is not None:
        tensor.grad = gradient if tensor.grad is None else tensor.grad.add_(gradient)


def _threads(count: int) -> ThreadPoolExecutor:
    """Return a pool whose threads run kernels of one thread if there are several."""
    kernels = 1 if count > 1 else torch.get_num_threads()
    return ThreadPoolExecutor(count, "agentgym-loss", torch.set_num_threads, (kernels,))


class _HeadLayer(CacheLayerMixin):
    """One layer of a head's keys and values, put before those of the trees."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._head = (keys, values)
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the head is there."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the head's keys and values followed by the new ones."""
        keys, values = self._head
        return torch.cat((keys, key_states), 2), torch.cat((values, value_states), 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many keys the attention sees, and from which on."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Return the head's length."""
        return int(self._head[0].shape[2])

    def get_max_length(self) -> int:
        """Return that there is no limit."""
        return -1
