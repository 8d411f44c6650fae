"""Run forward passes of the batch, to prefill new rows or for one decoding step."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM

from agentgym.engines.local.attention import PackedRows
from agentgym.engines.local.decoding.kv_cache import BatchCache
from agentgym.engines.local.model import LoadedModel


class _Layer(NamedTuple):
    """Matrices of one layer, transposed so that ``states @ matrix`` is the output."""

    inputs: Tensor
    output: Tensor
    gate_up: Tensor
    down: Tensor


class FusedLlama:
    """Computes logits with fused copies of a Llama's weights."""

    def __init__(self, model: LlamaForCausalLM, columns: int) -> None:
        config: Any = model.config
        self._model = model
        self._heads = int(config.num_attention_heads)
        self._rotated = self._heads + int(config.num_key_value_heads)
        self._head_dim = int(config.head_dim)
        self._eps = float(config.rms_norm_eps)
        frequencies = model.get_buffer("model.rotary_emb.inv_freq")
        angles = torch.outer(torch.arange(columns), frequencies.float())
        self._rotations = torch.polar(torch.ones_like(angles), angles)[:, None]
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Fuse the model's weights again after they changed."""
        weights = {
            name.removesuffix(".weight"): tensor
            for name, tensor in self._model.state_dict().items()
        }
        count = self._model.config.num_hidden_layers
        self._embedding = weights["model.embed_tokens"]
        self._layers = [self._fuse(weights, f"model.layers.{i}.") for i in range(count)]
        self._head = (weights["lm_head"] * weights["model.norm"]).t()

    def _fuse(self, weights: dict[str, Tensor], layer: str) -> _Layer:
        attention, mlp = f"{layer}self_attn.", f"{layer}mlp."
        queries = weights[attention + "q_proj"] * self._head_dim**-0.5
        inputs = [
            _interleave(queries, self._head_dim),
            _interleave(weights[attention + "k_proj"], self._head_dim),
            weights[attention + "v_proj"],
        ]
        gate_up = [weights[mlp + "gate_proj"], weights[mlp + "up_proj"]]
        before, between = f"{layer}input_layernorm", f"{layer}post_attention_layernorm"
        return _Layer(
            inputs=(torch.cat(inputs) * weights[before]).t(),
            output=weights[attention + "o_proj"].t(),
            gate_up=(torch.cat(gate_up) * weights[between]).t(),
            down=weights[mlp + "down_proj"].t(),
        )

    def logits(self, work: PackedRows, last: Tensor | None) -> Tensor:
        """Return the logits after each packed token, and write to the KV cache."""
        rotations = self._rotations[work.positions]
        states = self._embedding[work.ids]
        for number, layer in enumerate(self._layers):
            mixed = self._normed(states) @ layer.inputs
            mixed = mixed.view(len(work.ids), -1, self._head_dim)
            pairs = mixed[:, : self._rotated].unflatten(-1, (-1, 2))
            torch.view_as_complex(pairs).mul_(rotations)
            query, new = mixed[:, : self._heads], mixed[:, self._heads :]
            work.cache.write(number, work.targets, new)
            if layer is self._layers[-1] and last is not None:
                query, states = query[last], states[last]
                work = work.ending(last)  # the other tokens are not needed any more
            attended = work.read(number, query).flatten(1)
            states = torch.addmm(states, attended, layer.output)
            gate, up = (self._normed(states) @ layer.gate_up).chunk(2, -1)
            states = torch.addmm(states, functional.silu(gate) * up, layer.down)
        logits: Tensor = self._normed(states) @ self._head
        return logits

    def _normed(self, states: Tensor) -> Tensor:
        return functional.rms_norm(states, states.shape[-1:], None, self._eps)


def fuse(loaded: LoadedModel) -> FusedLlama | None:
    """Return the fused form of a small Llama without an adapter; None for other models.

    A large model would not gain: it spends its time in matrix products, and a second
    copy of it would take memory.
    """
    model = loaded.model
    if type(model) is not LlamaForCausalLM or not loaded.is_small or loaded.roles:
        return None
    config: Any = model.config
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    plain = (
        config.hidden_act == "silu"
        and config.rope_parameters["rope_type"] == "default"
        and all(type(m) is nn.Linear and m.bias is None for m in linears)
        and loaded.adapter is None
        and model.dtype == torch.float32
    )
    return FusedLlama(model, loaded.context) if plain else None


def _interleave(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder a matrix's outputs so that the two numbers of a rotary pair are adjacent.

    Before, a pair is the outputs i and i + head_dim / 2 of a head.
    """
    halves = weight.view(-1, 2, head_dim // 2, weight.shape[-1])
    return halves.transpose(1, 2).reshape(weight.shape)


_WIDTH_STEP = 16
_FIXED_WIDTH_STEP = 128
_LEAST_TOKENS = 32
"""Fewest tokens for a thread of its own; with fewer, the overhead is too large."""


class BatchForward:
    """Runs the model on rows of a :class:`BatchCache`.

    Args:
        loaded: The model.
        rows: Most responses at the same time.
        fixed: Run the kernels with few different shapes, so that a row's result does
            not depend on other rows. Each row then has space for the whole context, so
            that fewer rows may fit.
    """

    def __init__(self, loaded: LoadedModel, rows: int, *, fixed: bool = False) -> None:
        self.loaded = loaded
        self._width_step = _FIXED_WIDTH_STEP if fixed else _WIDTH_STEP
        if fixed:
            rows = min(rows, loaded.cache_tokens // loaded.context)
        self.cache = BatchCache(
            loaded.cache_shape, rows, loaded.context, loaded.device, loaded.cache_tokens
        )
        self._sampled, self._copy = loaded.sampled()
        self._fused = fuse(self._sampled)
        self._workers = 1 if fixed or self._fused is None else loaded.threads[0]
        self._pool = ThreadPoolExecutor(
            max(1, self._workers - 1), "agentgym-forward", torch.set_num_threads, (1,)
        )

    def refresh(self) -> None:
        """Update copies of the model's weights after the weights changed."""
        if self._copy is not None:
            self._copy.refresh()
        if self._fused is not None:
            self._fused.refresh()

    def predict(
        self,
        ids: Sequence[Sequence[int]],
        starts: Sequence[int],
        adapters: Sequence[int] = (),
        *,
        first: int = 0,
        only_last: bool = False,
        shared_prefix: int = 0,
    ) -> Tensor:
        """Add new tokens to rows of the cache, and predict the tokens after them.

        For a small model, several threads compute different rows. They wait for each
        other only once; threads inside a kernel would wait at each operation.
        """

        def run(part: slice) -> Tensor:
            begin = first + part.start
            return self._run(ids[part], starts[part], begin, only_last, shared_prefix)

        if self._copy is not None and self.loaded.roles:  # one thread computes all rows
            given = adapters or [-1] * len(ids)
            owners = [[own] * len(row) for own, row in zip(given, ids, strict=True)]
            chosen = torch.tensor(list(chain(*owners)), device=self.loaded.device)
            self._copy.choose(chosen)

        mine, *others = _parts(list(map(len, ids)), self._workers)
        if not others:
            return run(mine)
        rest = [self._pool.submit(run, part) for part in others]
        try:
            logits = run(mine)
        finally:
            wait(rest)
        return torch.cat([logits, *(found.result() for found in rest)])

    @torch.inference_mode()
    def _run(
        self,
        ids: Sequence[Sequence[int]],
        starts: Sequence[int],
        first: int,
        only_last: bool,
        shared_prefix: int,
    ) -> Tensor:
        device = self.loaded.device
        counts = list(map(len, ids))
        lengths = torch.tensor(counts, device=device)
        start = torch.tensor(starts, device=device)
        rows = torch.arange(len(ids), device=device).repeat_interleave(lengths)
        ends = lengths.cumsum(0)
        places = torch.arange(len(rows), device=device) - (ends - lengths)[rows]
        reach = max(held + new for held, new in zip(starts, counts, strict=True))
        steps = -(-reach // self._width_step)
        width = min(self.cache.columns, steps * self._width_step)
        positions = start[rows] + places
        work = PackedRows(
            cache=self.cache,
            first=first,
            ids=torch.tensor(list(chain(*ids)), device=device),
            rows=rows,
            places=places,
            positions=positions,
            targets=self.cache.targets(first + rows, positions),
            mask=self._mask(start, max(counts), width),
            shared_prefix=shared_prefix,
        )
        last = ends - 1 if only_last else None
        if self._fused is not None:
            return self._fused.logits(work, last)
        states = self._sampled.states(work.ids, work.positions, work)
        return self._sampled.predict(states if last is None else states[last])

    def _mask(self, start: Tensor, time: int, width: int) -> Tensor:
        """Return the additive mask of future tokens, (rows, 1, time, width).

        ``start`` is the column of each row's first new token, ``time`` the number of
        new tokens per row, and ``width`` the number of columns that they attend to.
        """
        new = torch.arange(time, device=start.device)
        keys = torch.arange(width, device=start.device)
        hidden = keys > (start[:, None] + new)[:, None, :, None]
        dtype = self.loaded.cache_shape.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=start.device)
        return mask.masked_fill_(hidden, -torch.inf)


def _parts(tokens: Sequence[int], most: int) -> list[slice]:
    """Split rows into at most ``most`` slices with about equal numbers of tokens."""
    ends = np.cumsum(tokens)
    count = max(1, min(most, int(ends[-1]) // _LEAST_TOKENS))
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
    bounds = sorted({0, *cuts.tolist(), len(tokens)})
    return [slice(start, end) for start, end in pairwise(bounds)]


def rows_are_independent(forward: BatchForward, rows: int) -> bool:
    """Test whether a row's logits stay the same bits if other rows change.

    They must not depend on the row's index, on the other rows, or on the length of the
    longest row. This depends on the machine's matrix kernels. So the test computes the
    same rows several times, in another order and next to rows of other lengths.
    """
    step, columns = _FIXED_WIDTH_STEP, forward.cache.columns
    generator = torch.Generator().manual_seed(0)
    lengths = [7 + 13 * i % (step // 2) for i in range(rows)]
    pieces = [
        torch.randn(forward.cache.take(0, slice(0, n)).shape, generator=generator)
        for n in lengths
    ]
    seen: dict[int, Tensor] = {}
    for trial, longest in enumerate(range(step // 2, columns, step)):
        order = [(row + 5 * trial) % rows for row in range(rows)]
        held = [lengths[which] for which in order]
        for row, which in enumerate(order):
            forward.cache.put(row, pieces[which], slice(0, held[row]))
        held[trial % rows] = longest - 1
        logits = forward.predict([[token] for token in order], held)
        for row, which in enumerate(order):
            if row == trial % rows:
                continue
            if not torch.equal(seen.setdefault(which, logits[row]), logits[row]):
                return False
    return True
