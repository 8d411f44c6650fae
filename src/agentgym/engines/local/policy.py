"""LocalPolicy: chat completions from a model in this process."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.template_settings import TemplateSettings
from agentgym.engines.device import check_device
from agentgym.engines.local.decoding.batch import BatchDecoder
from agentgym.engines.local.decoding.decoder import Decoder, DecodingJob, Generation
from agentgym.engines.local.decoding.forward import BatchForward, rows_are_independent
from agentgym.engines.local.decoding.plain import PlainDecoder
from agentgym.engines.local.decoding.threads import in_short_thread
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.tokens.rendering import Prompt
from agentgym.errors import ModelError

_MOST_ROWS = 128
_FIXED_ROWS = 32


class LocalPolicy(Policy):
    """A policy whose model is in this process. Any thread may send requests."""

    def __init__(self, loaded: LoadedModel, *, deterministic: bool = False) -> None:
        self._loaded = loaded
        self.tokens = loaded.chat_tokens()
        self.decoder = _decoder(loaded, deterministic=deterministic)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        gpu: str = "auto",
        template: TemplateSettings | None = None,
    ) -> Self:
        """Load a policy for inference."""
        device = check_device(gpu)
        policy = in_short_thread(
            lambda: cls(
                load_model(
                    str(path), device=device, rank=None, seed=0, template=template
                )
            )
        )
        # Not close(): it waits for the decoder's thread, which may run this finalizer.
        weakref.finalize(policy, policy.decoder.stop).atexit = False
        return policy

    @property
    def model_name(self) -> str:
        """The user's name for the model: ``nano``, a folder's name, or an id."""
        path = Path(self._loaded.name)
        return path.name if path.is_dir() else self._loaded.name

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer a request; raise ContextLengthError if its prompt is too long."""
        prompt, job = self._job(request)
        self.decoder.submit(job)
        generation = await asyncio.wrap_future(job.future)
        return self._result(request, prompt, job, generation)

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield pieces of the response's text while it is sampled, then the result."""
        prompt, job = self._job(request)
        loop = asyncio.get_running_loop()
        tokens: asyncio.Queue[int | None] = asyncio.Queue()

        def post(token: int | None) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tokens.put_nowait, token)

        job.on_token = post
        job.future.add_done_callback(lambda _: post(None))
        self.decoder.submit(job)
        content = self.tokens.growing(prompt)
        try:
            while (token := await tokens.get()) is not None:
                if piece := content.add(token):
                    yield piece
        except BaseException:
            job.future.cancel()
            raise
        generation = await asyncio.wrap_future(job.future)
        result = self._result(request, prompt, job, generation)
        if rest := (result.content or "")[content.sent :]:
            yield rest
        yield result

    def room(self, request: ChatRequest) -> tuple[int, int]:
        """Return a prompt's number of tokens, and the number left in the context."""
        used = self.tokens.count(request)
        return used, self._loaded.context - used

    def copy_weights(
        self, weights: Iterable[tuple[str, Tensor]], *, version: int
    ) -> None:
        """Copy a trainer's weights into this model; running responses finish first."""
        model = self._loaded.model
        own = dict(model.named_parameters())
        missing = set(own)

        @torch.no_grad()
        def copy() -> None:
            for name, weight in weights:
                held = own.get(name)
                if held is None or held.shape != weight.shape:
                    size = None if held is None else tuple(held.shape)
                    raise ModelError(
                        f"The weights are not those of {self._loaded.name!r}: {name!r} "
                        f"is {tuple(weight.shape)} in them, and {size} here."
                    )
                held.copy_(weight)
                missing.discard(name)
            if missing:
                raise ModelError(
                    f"The weights are not those of {self._loaded.name!r}: "
                    f"{min(missing)!r} is missing."
                )
            self.decoder.version = version

        self.decoder.between_responses(copy)

    def close(self) -> None:
        """Stop sampling; running and waiting requests fail with EngineError."""
        self.decoder.close()

    def _job(self, request: ChatRequest) -> tuple[Prompt, DecodingJob]:
        prompt, room = self.tokens.prompt(request)
        grammar = self.tokens.grammars.of(request, prompt.end)
        path = None if grammar is None else self.tokens.grammars.begin(grammar)
        return prompt, DecodingJob(
            prompt=prompt.ids,
            head=prompt.head,
            adapter=self._loaded.adapter_of(request.agent),
            session=request.session,
            temperature=request.temperature,
            max_tokens=min(request.max_tokens, room),
            seed=request.seed,
            path=path,
            ends=self.tokens.ends(prompt, request.stop) if request.stop else None,
        )

    def _result(
        self,
        request: ChatRequest,
        prompt: Prompt,
        job: DecodingJob,
        generation: Generation,
    ) -> ChatResult:
        return self.tokens.result(
            request,
            prompt,
            generation.ids,
            generation.logprobs,
            reason=generation.finish_reason,
            version=generation.version,
            grammar=None if job.path is None else job.path.grammar,
        )


def _decoder(loaded: LoadedModel, *, deterministic: bool) -> Decoder[Any]:
    """Start the decoder for a model; it answers requests in batches if possible."""
    if not loaded.traits.is_packed:
        return PlainDecoder(loaded, keeps=not deterministic)
    forward = BatchForward(loaded, _MOST_ROWS, fixed=deterministic)
    fixed_rows = 0
    if deterministic:
        fixed_rows = min(_FIXED_ROWS, forward.cache.most_rows)
        if not rows_are_independent(forward, fixed_rows):
            fixed_rows = 1
    return BatchDecoder(forward, fixed_rows=fixed_rows)
