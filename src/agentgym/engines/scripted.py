"""ScriptedPolicy: a policy without a model; a function gives its answers."""

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.trajectory import RequestedCall


@dataclass(frozen=True)
class Reply:
    """The answer of a scripted policy."""

    content: str | None = None
    calls: list[tuple[str, dict[str, Any] | str]] = field(default_factory=list)


class ScriptedPolicy(Policy):
    """A policy that answers with the result of a function, instead of a model.

    ::

        policy = ScriptedPolicy(lambda request: Reply(calls=[("list_files", {})]))

    The token ids are the UTF-8 bytes of the text; all log-probabilities are 0.

    Args:
        respond: Called with each request; returns the reply. It may raise an error.
    """

    def __init__(self, respond: Callable[[ChatRequest], Reply]) -> None:
        self._respond = respond
        self._answers = count(1)
        self.version = 0

    @property
    def model_name(self) -> str:
        """The name ``scripted``."""
        return "scripted"

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Call the function, and return its reply as an answer."""
        return self.write(request, self._respond(request))

    def write(self, request: ChatRequest, reply: Reply) -> ChatResult:
        """Convert a reply to an answer with tokens."""
        number = next(self._answers)  # not len(messages): hand-offs may shorten them
        calls = [
            RequestedCall(
                id=f"call-{number}-{index}",
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
        for piece in re.findall(r"[^ ]* |[^ ]+", result.content or ""):
            yield piece
        yield result


def _written(call: RequestedCall) -> str:
    name = json.dumps(call.name)
    return f'<tool_call>{{"name": {name}, "arguments": {call.arguments}}}</tool_call>'
