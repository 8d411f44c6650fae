"""PlainDecoder: answer requests one by one through the model's own forward pass.

This is for models that cannot compute several sequences in one row
(:mod:`agentgym.engines.local.architecture`), for example since they have recurrent
states. The cache of transformers supports them, but cannot be cut to fewer tokens. So
the whole cache is copied at three points:

- after the system prompt and tools, which other prompts begin with,
- after the prompt, for other attempts at the same task,
- after the response, for the next turn of the conversation.
"""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from agentgym.engines.local.decoding import sampling
from agentgym.engines.local.decoding.decoder import Decoder, DecodingJob, Row
from agentgym.engines.local.decoding.kv_cache import BoundedStore
from agentgym.engines.local.model import LoadedModel

_CHUNK_TOKENS = 512
"""Most tokens per forward pass: attention may need memory for each pair of tokens."""


class CacheStore(BoundedStore[tuple[int, ...], DynamicCache]):
    """A store of transformers' KV caches by their tokens, up to a number of bytes."""

    def put(self, ids: Sequence[int], cache: DynamicCache) -> None:
        """Store a cache, which the caller must not change afterwards."""
        size = sum(tensor.nbytes for tensor in _tensors(cache))
        self.keep(tuple(ids), cache, size)

    def longest(self, ids: Sequence[int]) -> tuple[int, DynamicCache | None]:
        """Return the length of the longest stored prefix of ``ids``, and its cache.

        The cache is a copy. The prefix is shorter than ``ids``, since the last token
        must be computed for its logits. Without a prefix, the result is 0 and None.
        """
        prompt = tuple(ids)
        found = [
            held
            for held in self._entries
            if len(held) < len(prompt) and prompt[: len(held)] == held
        ]
        if not found:
            return 0, None
        best = max(found, key=len)
        return len(best), copy.deepcopy(self.get(best))


class PlainDecoder(Decoder[Row]):
    """Answers one request after the other, in the order of arrival.

    Args:
        loaded: The model.
        keeps: Keep KV caches for later requests that begin with the same tokens. If
            false, a result does not depend on earlier requests, bit for bit.
    """

    def __init__(self, loaded: LoadedModel, *, keeps: bool = True) -> None:
        self._sampled, self._copy = loaded.sampled()
        self._keeps = keeps and loaded.traits.continues
        self._store = CacheStore(loaded.cache_bytes // 2)
        self._adapter = -1
        self._cache = DynamicCache()
        # Last: this starts the thread, which uses the attributes above.
        super().__init__(loaded, most_rows=1, fixed_threads=not keeps)

    def _forget(self) -> None:
        self._store.clear()

    def _refresh(self) -> None:
        if self._copy is not None:
            self._copy.refresh()

    @torch.inference_mode()
    def _advance(self, jobs: list[DecodingJob]) -> None:
        if jobs:
            (job,) = jobs
            stream = sampling.random_stream(job.seed, job.max_tokens)
            row = Row(job, stream)
            self._rows.append(row)
            self._choose(job.adapter)
            states = self._prefill(job)
        elif self._rows:
            row = self._rows[0]
            states = self._compute(row.ids[-1:])
        else:
            return
        self._sample(row, self._sampled.predict(states[-1:]))

    def _choose(self, adapter: int) -> None:
        """Set the adapter of the next forward passes, if each role has its own."""
        if self._copy is None or not self._loaded.roles:
            return
        if adapter != self._adapter:
            self._store.clear()
        self._adapter = adapter
        self._copy.choose(torch.tensor([adapter], device=self._loaded.device))

    def _prefill(self, job: DecodingJob) -> Tensor:
        """Compute the prompt from its first uncached token; return hidden states."""
        ids, held = job.prompt, 0
        self._cache = DynamicCache(config=self._loaded.model.config)
        if not self._keeps:
            if self._loaded.traits.continues:
                return self._compute(ids)
            return self._states(ids)
        held, found = self._store.longest(ids)
        if found is not None:
            self._cache = found
        for end in sorted({job.head, len(ids) - 1}):
            if held < end < len(ids):
                self._compute(ids[held:end])
                self._store.put(ids[:end], copy.deepcopy(self._cache))
                held = end
        return self._compute(ids[held:])

    def _compute(self, ids: Sequence[int]) -> Tensor:
        """Add tokens to the cache in chunks; return the last chunk's hidden states."""
        for start in range(0, len(ids), _CHUNK_TOKENS):
            states = self._states(ids[start : start + _CHUNK_TOKENS])
        return states

    def _states(self, ids: Sequence[int]) -> Tensor:
        states: Tensor = self._sampled.model.get_decoder()(
            input_ids=torch.tensor([list(ids)], device=self._loaded.device),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        return states[0]

    def _sample(self, row: Row, logits: Tensor) -> None:
        """Sample one token; if the response ends with it, answer the request."""
        place = len(row.ids)
        device = logits.device
        if row.job.path is not None:
            sampling.hold(logits, [0], row.job.path.along(()))
        tokens, logprobs = sampling.sample(
            logits,
            torch.tensor([row.job.temperature], device=device),
            torch.from_numpy(row.stream[place : place + 1]).to(device),
        )
        if reason := self._take(row, tokens[0], logprobs[0]):
            self._rows.clear()
            if self._keeps:
                self._store.put([*row.job.prompt, *row.ids[:-1]], self._cache)
            self._answer(row, reason)


def _tensors(cache: DynamicCache) -> Iterator[Tensor]:
    """Yield all tensors of a cache."""
    for layer in cache.layers:
        for held in vars(layer).values():
            parts = held.values() if isinstance(held, dict) else (held,)
            yield from (part for part in parts if isinstance(part, Tensor))
