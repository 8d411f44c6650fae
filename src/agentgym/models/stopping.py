"""Read a request's stop sequences, and cut answers at them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym.core.policy import ChatResult
from agentgym.security.redaction import quoted


def asked_stop(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the stop sequences in a request's options."""
    asked = options.get("stop") or ()
    texts = (asked,) if isinstance(asked, str) else asked
    is_list = isinstance(texts, list | tuple)
    if not is_list or not all(isinstance(each, str) for each in texts):
        raise ValueError(
            f"stop = {quoted(asked)} is neither a text nor a list of texts."
        )
    return tuple(each for each in texts if each)


def _end(stop: Sequence[str] | None, text: str) -> int | None:
    """Return the position of the first stop sequence in ``text``, or None."""
    found = [at for end in stop or () if end and (at := text.find(end)) >= 0]
    return min(found, default=None)


def until_stop(stop: Sequence[str] | None, result: ChatResult) -> ChatResult:
    """Cut an answer before its first stop sequence; its tokens stay as sampled."""
    end = _end(stop, result.content or "")
    if end is None:
        return result
    content = (result.content or "")[:end]
    return replace(result, content=content, tool_calls=[], finish_reason="stop")


async def stream_until_stop(
    stop: Sequence[str] | None, pieces: AsyncIterator[str | ChatResult]
) -> AsyncIterator[str | ChatResult]:
    """Yield text up to the first stop sequence, then the cut ChatResult."""
    # An end of the text that may begin a stop sequence is held back.
    text, shown = "", 0
    async for piece in pieces:
        if isinstance(piece, str):
            text += piece
            safe = _end(stop, text)
            safe = len(text) - _held(stop, text) if safe is None else safe
            ready, last = text[shown:safe], None
        else:
            last = until_stop(stop, piece)
            ready = (last.content or "")[shown:]
        shown += len(ready)
        if ready:
            yield ready
        if last is not None:
            yield last


def _held(stop: Sequence[str] | None, text: str) -> int:
    """Return how many last characters of ``text`` may begin a stop sequence."""
    return max(
        (n for end in stop or () for n in range(len(end)) if text.endswith(end[:n])),
        default=0,
    )
