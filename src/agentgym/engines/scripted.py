"""ScriptedPolicy: a policy without a model, for tests; a function gives its answers."""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from agentgym.core.components import Components, label_tokens
from agentgym.core.files import write_json
from agentgym.core.formats import FORMATS
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.engines.base import Engine, Imitation, TrainingBatch, UpdateMetrics

_STATE = "scripted.json"


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


class ScriptedEngine(Engine):
    """An engine that does not learn; it records the data that it gets."""

    def __init__(self, respond: Callable[[ChatRequest], Reply]) -> None:
        self.batches: list[TrainingBatch] = []
        self.imitated: list[TrainingBatch] = []
        self._policy = ScriptedPolicy(respond)

    @property
    def policy(self) -> ScriptedPolicy:
        """The scripted policy."""
        return self._policy

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return self._policy.version

    def label(self, call: ModelCall) -> list[Components] | None:
        """Return each byte's components (e.g. tool selection)."""
        ids = call.response_ids
        if any(i >= 128 for i in ids):
            return None
        pieces = [chr(i) for i in ids]
        reading = FORMATS["hermes"].read("".join(pieces), tools=call.tools)
        return label_tokens(pieces, reading.spans, ended=False)

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Append the batch to ``batches``."""
        self.batches.append(batch)
        self._policy.version += 1
        return UpdateMetrics(step=self.step)

    def imitation(self) -> "ScriptedImitation":
        """Return a warm start that appends its batches to ``imitated``."""
        return ScriptedImitation(self)

    def save_checkpoint(self, folder: Path) -> None:
        """Write the number of updates into a JSON file."""
        write_json(folder / _STATE, self.step)

    def load_checkpoint(self, folder: Path) -> None:
        """Read the number of updates from the JSON file."""
        self._policy.version = json.loads((folder / _STATE).read_text(encoding="utf-8"))

    def export(self, folder: Path) -> None:
        """Create ``folder`` with the number of updates alone: it has no weights."""
        folder.mkdir()
        self.save_checkpoint(folder)


class ScriptedImitation(Imitation):
    """A warm start that does not learn; it records its batches in the engine."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine

    def write(
        self, request: ChatRequest, content: str, calls: Sequence[RequestedCall]
    ) -> ChatResult:
        """Convert a given answer to tokens, as the scripted policy does."""
        made: list[tuple[str, dict[str, Any] | str]]
        made = [(call.name, call.arguments) for call in calls]
        return self._engine.policy.write(request, Reply(content or None, made))

    def learn(self, batch: TrainingBatch, share: float) -> float:
        """Append the batch to the engine's ``imitated``; return 0."""
        self._engine.imitated.append(batch)
        return 0.0


def _written(call: RequestedCall) -> str:
    name = json.dumps(call.name)
    return f'<tool_call>{{"name": {name}, "arguments": {call.arguments}}}</tool_call>'
