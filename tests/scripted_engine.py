"""ScriptedEngine: an engine without a model; a function gives its answers."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agentgym.core.components import Components, label_tokens
from agentgym.core.files import write_json
from agentgym.core.formats import FORMATS
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.engines.base import Engine, Imitation, TrainingBatch, UpdateMetrics
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.evaluate.events import silent
from agentgym.train.sampling import Sampling

STATE = "scripted.json"


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
        write_json(folder / STATE, self.step)

    def load_checkpoint(self, folder: Path) -> None:
        """Read the number of updates from the JSON file."""
        self._policy.version = json.loads((folder / STATE).read_text(encoding="utf-8"))

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


def made_run(config: Any, scenario: Any, engine: Engine, agent: Any = None) -> Any:
    """Return the parts of a run that a warm start uses."""
    return SimpleNamespace(
        config=config,
        scenario=scenario,
        engine=engine,
        progress=silent,
        check_interrupt=lambda: None,
        sampling=Sampling(None),
        plan=SimpleNamespace(agent=agent),
    )
