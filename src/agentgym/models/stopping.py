"""Cut answers at stop sequences, for policies that do not end sampling at them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from agentgym.core.policy import ChatResult


def _end(stop: Sequence[str] | None, text: str) -> int | None:
    """Return the position of the first stop sequence in ``text``, or None."""
    found = [at for end in stop or () if end and (at := text.find(end)) >= 0]
    return min(found, default=None)


def until_stop(stop: Sequence[str] | None, result: ChatResult) -> ChatResult:
    """Cut an answer before its first stop sequence, and remove its tool calls.

    The answer's tokens stay, since they were sampled. An answer without a stop sequence
    is returned unchanged.
    """
    end = _end(stop, result.content or "")
    if end is None:
        return result
    content = (result.content or "")[:end]
    return replace(result, content=content, tool_calls=[], finish_reason="stop")


async def stream_until_stop(
    stop: Sequence[str] | None, pieces: AsyncIterator[str | ChatResult]
) -> AsyncIterator[str | ChatResult]:
    """Yield text up to the first stop sequence; at the end, yield the cut ChatResult.

    If the end of the text may begin a stop sequence, this end is held back until the
    next piece shows whether it does.
    """
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
