"""A policy with a script, so that gateway tests need no model."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.trajectory import RequestedCall

Script = Callable[[ChatRequest], ChatResult]


def say(
    text: str | None = "Hello there.",
    *,
    calls: list[RequestedCall] | None = None,
    prompt_ids: list[int] | None = None,
) -> ChatResult:
    """Return an answer with made-up but distinct ids."""
    response_ids = [ord(c) for c in text or "tool"] + [2]
    return ChatResult(
        prompt_ids=prompt_ids or [1, 70_000, 5],
        response_ids=response_ids,
        logprobs=[-0.1 * (i + 1) for i in range(len(response_ids))],
        content=text,
        tool_calls=calls or [],
        finish_reason="tool_calls" if calls else "stop",
        model_version=7,
    )


def call(name: str = "add", arguments: str = '{"a": 1}') -> RequestedCall:
    """Return a tool call."""
    return RequestedCall(id=f"call_{name}", name=name, arguments=arguments)


class FakePolicy(Policy):
    """Answers with what ``script`` returns; remembers what it was asked.

    Args:
        script: Called with each request; may raise.
        gate: If given, answers wait until it is set.
        pieces: What :meth:`stream` yields before the result.
    """

    def __init__(
        self,
        script: Script = lambda request: say(),
        *,
        gate: threading.Event | None = None,
        pieces: list[str] | None = None,
    ) -> None:
        self._script = script
        self._gate = gate
        self._pieces = pieces
        self.requests: list[ChatRequest] = []

    @property
    def model_name(self) -> str:
        return "fake"

    async def chat(self, request: ChatRequest) -> ChatResult:
        self.requests.append(request)
        while self._gate is not None and not self._gate.is_set():
            await asyncio.sleep(0.001)
        return self._script(request)

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        result = await self.chat(request)
        whole = [result.content or ""]
        for piece in whole if self._pieces is None else self._pieces:
            yield piece
        yield result
