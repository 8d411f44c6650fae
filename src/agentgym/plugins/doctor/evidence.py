"""Evidence: read the records of a run; records that cannot be read are skipped."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.core.ledger import Ledger
from agentgym.core.trajectory import NO_REASON
from agentgym.errors import CheckpointError, RunFolderError, StoreError
from agentgym.evaluate.compare import Effect
from agentgym.evaluate.metrics import Metrics
from agentgym.rollout.store.reader import StoreReader
from agentgym.train.diagnostics import Remark
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.run_state import RunState

_RECENT = 10  # number of steps that count as recent
_FAILURES = """
SELECT json_extract(CAST(data AS TEXT), '$.reason.kind') FROM rollouts
LEFT JOIN events ON events.rollout_id = rollouts.rollout_id
    AND event_type = 'attempt_failed'
    AND attempt_id = json_extract(CAST(status AS TEXT), '$.last_attempt_id')
WHERE state = 'failed' AND is_train
"""


@dataclass(frozen=True)
class Evidence:
    """The records of a run, as far as they can be read."""

    status: str  # in run.json: running, interrupted, failed or done
    error: str = ""  # why it failed
    config: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)  # lines of metrics.jsonl
    ledger: Ledger = field(default_factory=Ledger)
    baseline: Metrics | None = None  # before the first update
    validation: Metrics | None = None
    remarks: list[Remark] = field(default_factory=list)  # of the newest validation
    checkpoint_error: str = ""  # why the newest checkpoint cannot be read
    result: TrainingResult | None = None  # once it is done
    result_error: str = ""  # why the result cannot be read
    effect: Effect | None = None  # of training, on held-out tasks; once done
    failures: Counter[str] = field(default_factory=Counter)  # of training, by kind

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The records of the last 10 training steps."""
        return self.steps[-_RECENT:]

    @property
    def episodes(self) -> int:
        """Number of training rollouts so far."""
        return int(self.steps[-1]["episodes"]) if self.steps else 0


def read_evidence(run: RunFolder) -> Evidence:
    """Read the records of a run."""
    record = run.record()
    state, problem = RunState(), ""
    try:
        if loaded := run.load_state():
            state = loaded[0]
    except CheckpointError as error:
        problem = str(error)
    result, result_error = read_result(run)
    return Evidence(
        status=str(record.get("status", "unknown")),
        error=str(record.get("error", "")),
        config=record.get("config", {}),
        steps=run.metrics(),
        ledger=state.ledger,
        baseline=state.start if state.baseline else None,
        validation=state.validation,
        remarks=state.watch.remarks,
        checkpoint_error=problem,
        result=result,
        result_error=result_error,
        effect=None if result is None else result.effect,
        failures=_failures(run.path / "rollouts.db"),
    )


def read_result(run: RunFolder) -> tuple[TrainingResult | None, str]:
    """Return a run's result, or None, and why it cannot be read, or ""."""
    try:
        return TrainingResult.load(run.path), ""
    except RunFolderError as error:
        return None, str(error)


def _failures(database: Path) -> Counter[str]:
    """Count failed training rollouts by reason; empty if they cannot be read."""
    try:
        with StoreReader(database).reading() as file:
            rows = file.execute(_FAILURES).fetchall()
    except StoreError:
        return Counter()
    return Counter(kind or NO_REASON.kind for (kind,) in rows)
