"""OpenedRun: read a run for the viewer, with an index of its rollouts."""

import threading
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.core.task import Task
from agentgym.core.trajectory import Trajectory
from agentgym.errors import AgentGymError, NotFoundError, StoreError
from agentgym.rollout.record import stored_rollout
from agentgym.rollout.store.reader import StoreReader
from agentgym.rollout.store.rollout import Rollout
from agentgym.rollout.task_input import read_task
from agentgym.train.run_folder import CREDIT_FILE, RunFolder
from agentgym.view.first_wrong import CallJudge
from agentgym.view.replay import replay_command
from agentgym.view.rollout_index import RolloutIndex
from agentgym.view.rollout_page import rollout_page, speaker_graph
from agentgym.view.run_page import run_page
from agentgym.view.tokens import token_texts

_FILES = (
    *("run.json", "metrics.jsonl", "result.json"),
    *("rollouts.db", "rollouts.db-wal", CREDIT_FILE),
)
_STEPS, _ROLLOUTS = slice(0, 3), slice(3, None)
_PATIENCE_S = 0.15
_WHOLE_S = 600.0
_NO_STORE = (
    "does not exist. It is made when the run's first rollout begins; until then there "
    "are no rollouts to show."
)
_MOST_JUDGED = 1000
_SIBLINGS = 64
_RELATED = 200


Signature = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class WatchedRun(RunFolder):
    """A run folder that reads each line of its metrics only once."""

    seen: list[dict[str, Any]] = field(default_factory=list, compare=False)
    ends: list[int] = field(default_factory=lambda: [0], compare=False)
    guard: Any = field(default_factory=threading.Lock, compare=False)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the records in ``metrics.jsonl``, one per training step."""
        path = self.path / "metrics.jsonl"
        with self.guard:
            size = path.stat().st_size if path.exists() else 0
            if size < self.ends[0]:  # a resumed run has removed steps
                self.seen.clear()
                self.ends[0] = 0
            new, self.ends[0] = self.metrics_from(self.ends[0])
            self.seen.extend(new)
            return list(self.seen)


class OpenedRun:
    """A run that the viewer shows, with an index of its rollouts.

    Every method reads the current files, also while the run goes on. Thread-safe.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = WatchedRun(run.path)
        self._store = StoreReader(run.path / "rollouts.db")
        self._index = RolloutIndex(self._store)
        self._indexed: Any = None
        self._indexing: threading.Thread | None = None
        self._problem: StoreError | None = None
        self._lock = threading.Lock()
        self._judge: CallJudge | None = None
        self._confusions: dict[Any, Any] = {}

    def signature(self) -> Signature:
        """Return sizes and times of the run's files, to detect changes."""
        return file_marks(self.run.path, _FILES)

    def cursor(self) -> dict[str, str]:
        """Return hashes that change with the run's steps and with its rollouts.

        Data that is read after this call is at least as new as the hashes.
        """
        now = self.signature()
        parts = {"steps": now[_STEPS], "rollouts": now[_ROLLOUTS]}
        return {name: digest(part) for name, part in parts.items()}

    def page(self) -> dict[str, Any]:
        """Return the data of the run's page: curves, measurements and problems."""
        cursor = as_text(self.cursor())
        return run_page(self.run) | {"cursor": cursor}

    def rollouts(
        self, filters: Mapping[str, str], sort: str, offset: int, limit: int
    ) -> dict[str, Any]:
        """Return some of the rollouts that match the filters, and their total number.

        If ``is_loading`` in the result is True, the database is still being read:
        later calls may return more rollouts. For the arguments, see
        :meth:`RolloutIndex.find`.
        """
        cursor = as_text(self.cursor())
        is_loading = self._refresh()
        found = self._index.find(filters, sort=sort, offset=offset, limit=limit)
        note = "" if self._store.exists else f"{self._store.path} {_NO_STORE}"
        return found | {"is_loading": is_loading, "note": note, "cursor": cursor}

    def graph(self, filters: Mapping[str, str]) -> dict[str, Any]:
        """Return how often each role spoke after another, in scored rollouts."""
        is_loading = self._refresh()
        found = speaker_graph(self._index.speakers(filters))
        return found | {"is_loading": is_loading}

    def facets(self) -> dict[str, Any]:
        """Return each filter's values, and the number of rollouts with each value."""
        is_loading = self._refresh()
        return self._index.facets() | {"is_loading": is_loading}

    def curves(self, by: str) -> dict[str, Any]:
        """Return training metrics by step and by value of the column ``by``.

        For the metrics, see :meth:`RolloutIndex.curves`.
        """
        is_loading = self._refresh()
        return {"rows": self._index.curves(by), "is_loading": is_loading}

    def rollout(self, rollout_id: str) -> dict[str, Any]:
        """Return the data of a rollout's page, with other attempts at its task."""
        page = rollout_page(*self._read(rollout_id), self._judged())
        self._refresh()
        group, task = page["group"], page["task"]["id"]
        siblings = self._index.find(
            {"task_group": group}, sort="rollout_id", limit=_SIBLINGS
        )
        related = self._index.find({"task_id": task}, sort="step", limit=_RELATED)
        return page | {
            "siblings": siblings["rows"],
            "next_failed": self._index.next_failed(rollout_id),
            "same_task": related["rows"],
            "team": speaker_graph(self._index.speakers({"task_id": task})),
            "replay": replay_command(self.run.record()["config"], page["task"]),
        }

    def tokens(self, rollout_id: str) -> dict[str, Any]:
        """Return a rollout's sampled tokens, and whether each of them was trained."""
        rollout, trajectory = self._read(rollout_id)
        return token_texts(self.run, trajectory, is_train=rollout.is_train)

    def _read(self, rollout_id: str) -> tuple[Rollout, Trajectory]:
        found = stored_rollout(self._store, rollout_id)
        if found is None:
            raise NotFoundError("rollout", rollout_id, [])
        return found

    def confusion(self, phase: str) -> dict[str, Any]:
        """Return the confusion matrix of called and needed tools in one measurement.

        At most a thousand rollouts are counted. ``phase`` names the measurement, such
        as ``before`` or ``after`` training.
        """
        key = phase, self.signature()
        if key not in self._confusions:
            self._confusions = {key: self._confuse(phase)}
        found: dict[str, Any] = self._confusions[key]
        return found

    def _confuse(self, phase: str) -> dict[str, Any]:
        self._refresh(_WHOLE_S)
        page = self._index.find({"phase": phase}, limit=500)
        more = self._index.find({"phase": phase}, limit=500, offset=500)
        ids = [row["rollout_id"] for row in (*page["rows"], *more["rows"])]
        tasks: dict[str, Task] = {}
        trajectories = []
        for rollout_id in ids[:_MOST_JUDGED]:
            found = stored_rollout(self._store, rollout_id)
            if found is not None:
                task = read_task(found[0].input)
                tasks[task.id] = task
                trajectories.append(found[1])
        return self._judged().confusion(list(tasks.values()), trajectories)

    def start_indexing(self) -> None:
        """Start to read the database in the background."""
        with suppress(AgentGymError):
            self._refresh(patience_s=0)

    def _judged(self) -> CallJudge:
        with self._lock:
            if self._judge is None:
                self._judge = CallJudge(
                    str(self.run.record()["config"].get("scenario"))
                )
            return self._judge

    def _refresh(self, patience_s: float = _PATIENCE_S) -> bool:
        """Read new events in a thread for at most ``patience_s`` seconds.

        Returns whether the thread is still reading.
        """
        if not self._store.exists:
            return False
        with self._lock:
            running = self._indexing
            if running is None or not running.is_alive():
                self._raise_problem()
                now = self.signature()
                if now == self._indexed:
                    return False
                running = self._indexing = threading.Thread(
                    target=self._update, args=(now,), name="agentgym-index", daemon=True
                )
                running.start()
        running.join(patience_s)
        if running.is_alive():
            return True
        self._raise_problem()
        return False

    def _raise_problem(self) -> None:
        """Raise the error of the last read, if it failed; each error only once."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _update(self, signature: Any) -> None:
        try:
            self._index.update()
            self._indexed = signature
        except StoreError as error:
            self._problem = error


def file_marks(folder: Path, names: Iterable[str]) -> Signature:
    """Return size and modification time of each file; None for a missing file."""
    found: list[tuple[int, int] | None] = []
    for name in names:
        try:
            status = (folder / name).stat()
            found.append((status.st_size, status.st_mtime_ns))
        except OSError:
            found.append(None)
    return tuple(found)


def digest(value: object) -> str:
    """Return a short hash of a value."""
    return f"{zlib.crc32(repr(value).encode()):08x}"


def as_text(cursor: Mapping[str, str]) -> str:
    """Join the hashes of :meth:`OpenedRun.cursor` to one text, for the page."""
    return ".".join(cursor.values())
