"""The policy: chat completions from a model in this process."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Self

import torch

from agentgym.core.components import OPEN_CALL
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.engines.local.decoder import Decoder, Generation, Job
from agentgym.engines.local.forward import BatchForward, rows_are_independent
from agentgym.engines.local.loading import LoadedModel, load_model
from agentgym.engines.local.rendering import Detokenizer, Prompt, Renderer
from agentgym.engines.local.support import check_device
from agentgym.engines.local.tool_calls import parse_response
from agentgym.errors import ContextLengthError

_MOST_ROWS = 128
_FIXED_ROWS = 32


class LocalPolicy(Policy):
    """A model in this process that answers many requests at once.

    Safe to call from any thread and event loop.

    Args:
        loaded: The model.
        deterministic: The same request gives the same bits whatever else runs.
    """

    def __init__(self, loaded: LoadedModel, *, deterministic: bool = False) -> None:
        self._loaded = loaded
        self._renderer = Renderer(loaded.tokenizer)
        self._detokenizer = Detokenizer(
            loaded.tokenizer, thinking=self._renderer.begins_reasoning
        )
        self._end_texts = [self._renderer.decode([i]) for i in sorted(loaded.stop_ids)]
        cores = torch.get_num_threads()
        forward = BatchForward(
            loaded,
            _MOST_ROWS,
            fixed=deterministic,
            workers=cores if loaded.is_small else 1,
        )
        self.decoder = Decoder(
            forward,
            loaded.stop_ids,
            fixed_rows=_fixed_rows(forward) if deterministic else 0,
            threads=1 if loaded.is_small else cores,
        )

    @classmethod
    def load(cls, path: str | Path, *, gpu: str = "auto") -> Self:
        """Load a policy for inference: ``nano``, a folder, or a Hugging Face id.

        Its weights and its thread are let go with it.

        Args:
            path: A folder that ``LocalEngine.export`` or ``save_pretrained`` wrote
                (of a model or of a peft adapter), ``nano``, or an id.
            gpu: ``auto``, ``local`` or ``none``.

        Raises:
            ModelError: It cannot be loaded or does not call tools.
            GPUNotAvailableError: ``local``, and no GPU is there.
        """
        device = check_device(gpu)
        policy = cls(load_model(str(path), device=device, rank=None, seed=0))
        weakref.finalize(policy, _in_thread, policy.decoder.close).atexit = False
        return policy

    @property
    def model_name(self) -> str:
        """What the user asked for: ``nano``, a folder's name, or an id."""
        path = Path(self._loaded.name)
        return path.name if path.is_dir() else self._loaded.name

    @property
    def detokenizer(self) -> Detokenizer:
        """What turns response ids into the text of each token."""
        return self._detokenizer

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer one request.

        Raises:
            ContextLengthError: The prompt leaves no room for an answer.
            EngineError: The chat template refuses the messages, generation failed,
                or the policy is closed.
        """
        prompt, job = self._job(request)
        self.decoder.submit(job)
        return self._result(request, prompt, await asyncio.wrap_future(job.future))

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield the response's text in pieces as it is sampled, then the result.

        The text is the response's content: tool calls are not in it, they come with
        the result.

        Raises:
            ContextLengthError: The prompt leaves no room for an answer.
            EngineError: As :meth:`chat`.
        """
        prompt, job = self._job(request)
        loop = asyncio.get_running_loop()
        tokens: asyncio.Queue[int | None] = asyncio.Queue()
        job.on_token = lambda token: _post(loop, tokens, token)
        job.future.add_done_callback(lambda _: _post(loop, tokens, None))
        self.decoder.submit(job)
        text = _ContentStream(self._detokenizer, self._loaded.stop_ids)
        try:
            while (token := await tokens.get()) is not None:
                if piece := text.add(token):
                    yield piece
        except BaseException:
            job.future.cancel()
            raise
        result = self._result(request, prompt, await asyncio.wrap_future(job.future))
        if rest := (result.content or "")[text.sent :]:
            yield rest
        yield result

    def close(self) -> None:
        """Stop generating; requests that run or wait fail with EngineError."""
        self.decoder.close()

    def _job(self, request: ChatRequest) -> tuple[Prompt, Job]:
        prompt = self._renderer.render(request.messages, request.tools, request.session)
        room = self._loaded.context - len(prompt.ids)
        if room < 1:
            raise ContextLengthError(
                f"The prompt has {len(prompt.ids)} tokens and the context of "
                f"{self.model_name!r} holds {self._loaded.context}, so there is no "
                "room for an answer. Shorten the messages or the tools' results."
            )
        return prompt, Job(
            prompt=prompt.ids,
            head=prompt.head,
            session=request.session,
            temperature=request.temperature,
            max_tokens=min(request.max_tokens, room),
            seed=request.seed,
        )

    def _result(
        self, request: ChatRequest, prompt: Prompt, generation: Generation
    ) -> ChatResult:
        self._renderer.remember(request.session, prompt, generation.ids)
        content, calls = parse_response(
            self._renderer.decode(generation.ids),
            self._end_texts,
            key=f"{request.session}/{request.seed}/{len(prompt.ids)}",
            thinking=self._renderer.begins_reasoning,
        )
        reason = generation.finish_reason
        return ChatResult(
            prompt_ids=prompt.ids,
            response_ids=generation.ids,
            logprobs=generation.logprobs,
            content=content,
            tool_calls=calls,
            finish_reason="tool_calls" if calls and reason == "stop" else reason,
            model_version=generation.version,
        )


class _ContentStream:
    """Turns tokens into the pieces of content that are safe to show already.

    From a ``<tool_call>`` on, or what may become one, nothing is shown: whether it
    is a call, and so no content, is known only at the end.
    """

    def __init__(self, detokenizer: Detokenizer, stop_ids: frozenset[int]) -> None:
        self._text = detokenizer.grow()
        self._stop_ids = stop_ids
        self._unsent = ""
        self._is_closed = False
        self.sent = 0

    def add(self, token: int) -> str:
        """Return the text to show after one more token; often empty."""
        if self._is_closed or token in self._stop_ids:
            return ""
        piece = self._text.add(token)
        shown, call, _ = (self._unsent + (piece or "")).partition(OPEN_CALL)
        self._is_closed = piece is None or bool(call)
        self._unsent = shown
        held = next(
            (n for n in range(len(OPEN_CALL), 0, -1) if shown.endswith(OPEN_CALL[:n])),
            0,
        )
        shown = shown[: len(shown) - held]
        if not self.sent and not shown.strip():
            return ""
        self._unsent = self._unsent[len(shown) :]
        self.sent += len(shown)
        return shown


def _in_thread(function: Callable[[], None]) -> None:
    """Call a function that waits for a thread, which may be the current one."""
    Thread(target=function, daemon=True).start()


def _post[T](loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[T], item: T) -> None:
    """Put ``item`` into a queue of another thread's loop, unless that loop is gone."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(queue.put_nowait, item)


def _fixed_rows(forward: BatchForward) -> int:
    """Return how many rows a reproducible decoding step has on this machine."""
    rows = min(_FIXED_ROWS, forward.rows)
    return rows if rows_are_independent(forward, rows) else 1
