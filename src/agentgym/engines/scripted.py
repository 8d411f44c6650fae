"""A policy without a model: a function answers, to try the rest."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.components import CLOSE_CALL, OPEN_CALL
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.trajectory import RequestedCall


@dataclass(frozen=True)
class Reply:
    """What a scripted policy says.

    Attributes:
        content: Text, None for none.
        calls: Tool calls: name and arguments, a dict or raw text.
    """

    content: str | None = None
    calls: list[tuple[str, dict[str, Any] | str]] = field(default_factory=list)


class ScriptedPolicy(Policy):
    """A policy whose token ids are UTF-8 bytes and whose log-probabilities are 0.

    ::

        policy = ScriptedPolicy(lambda request: Reply(calls=[("list_files", {})]))

    Args:
        respond: Called with each request; may raise.
    """

    def __init__(self, respond: Callable[[ChatRequest], Reply]) -> None:
        self._respond = respond
        self.version = 0

    @property
    def model_name(self) -> str:
        """``scripted``."""
        return "scripted"

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer with what the function returns."""
        reply = self._respond(request)
        calls = [
            RequestedCall(
                id=f"call-{len(request.messages)}-{index}",
                name=name,
                arguments=args if isinstance(args, str) else json.dumps(args),
            )
            for index, (name, args) in enumerate(reply.calls)
        ]
        text = (reply.content or "") + "".join(map(_written, calls))
        response_ids = list(text.encode())
        return ChatResult(
            prompt_ids=list(json.dumps(request.messages).encode()),
            response_ids=response_ids,
            logprobs=[0.0] * len(response_ids),
            content=reply.content,
            tool_calls=calls,
            finish_reason="tool_calls" if calls else "stop",
            model_version=self.version,
        )

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield the text word by word, then the result."""
        result = await self.chat(request)
        for word in (result.content or "").split(" "):
            yield word + " "
        yield result


def _written(call: RequestedCall) -> str:
    name = json.dumps(call.name)
    return f'{OPEN_CALL}{{"name": {name}, "arguments": {call.arguments}}}{CLOSE_CALL}'
