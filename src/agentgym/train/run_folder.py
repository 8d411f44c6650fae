"""A run's folder: its layout, its lock, and reading it later."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field

from agentgym.core.config import TrainingConfig
from agentgym.core.files import (
    disk_trouble,
    new_folder,
    parse_json,
    write_atomically,
    write_json,
)
from agentgym.core.ledger import Ledger
from agentgym.errors import (
    CheckpointError,
    ConfigError,
    LimitReached,
    NotFoundError,
    OutputClosed,
    RunFolderError,
    StoreError,
    TrainingInterrupted,
    UnreachableError,
)
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.progress import StepReport
from agentgym.security.private import make_private_folder, private
from agentgym.security.redaction import Redactor
from agentgym.train.measure.forgetting import Forgetting
from agentgym.train.measure.watch import Watch
from agentgym.train.tasks import StreamState
from agentgym.train.warm_start.record import WarmStart

_MINIMUM_FREE_BYTES = 200 * 2**20
_KEPT = 2  # checkpoints
CREDIT_FILE = "credit.jsonl"


class RunState(BaseModel, extra="forbid"):
    """The state of a run in a checkpoint, apart from weights.

    Attributes:
        step: Updates done.
        episodes: Training rollouts done.
        stream: Where the stream of training tasks stands.
        wall_seconds: Spent so far, over all resumes.
        cpu_seconds: Likewise.
        rollout_seconds: Wall seconds per rollout, as timed first; None if it was not.
        training_began: ``wall_seconds`` when the first step began.
        baseline: Held-out measurements of the untrained policy, by name.
        warm_start: The calls imitated before the first update; None if there were none
            yet.
        warmed: Held-out measurements after that, by name; empty before.
        first_validation: That of the warm start's weights; None without one.
        validation: The newest validation measurement.
        confirmation: That of as many others, where it was good.
        confirmations: How many there were in the whole run.
        watch: The results of all validations so far.
        ledger: Model calls so far.
        forgetting: Answers of the untrained model to plain questions, and how far the
            model was from it when last measured; None before they were asked.
    """

    step: int = 0
    episodes: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    stream: StreamState = Field(default_factory=StreamState)
    rollout_seconds: float | None = None
    training_began: float | None = None
    baseline: dict[str, Metrics] = Field(default_factory=dict)
    warm_start: WarmStart | None = None
    warmed: dict[str, Metrics] = Field(default_factory=dict)
    first_validation: Metrics | None = None
    validation: Metrics | None = None
    confirmation: Metrics | None = None
    confirmations: int = 0
    watch: Watch = Field(default_factory=Watch)
    ledger: Ledger = Field(default_factory=Ledger)
    forgetting: Forgetting | None = None

    @property
    def start(self) -> Metrics:
        """The held-out tasks of the main set, where on-policy training begins."""
        return next(iter((self.warmed or self.baseline).values()))


@dataclass(frozen=True)
class RunFolder:
    """Paths and records of one run.

    ::

        run.json            settings, status (running, interrupted, failed, done)
        metrics.jsonl       one line a step, see :func:`metrics_line`
        credit.jsonl        how each model call was trained, see :func:`credit_lines`
        rollouts.db         every rollout, model call, tool call and reward (SQLite)
        checkpoints/        step-000012/, the two newest and the best validated
        tensorboard/        the same metrics as curves
        agent/              the trained agent, once done
        result.json         before and after, once done

    Attributes:
        path: The folder.
    """

    path: Path

    @classmethod
    def check_new(cls, config: TrainingConfig) -> Self:
        """Return the folder of a new run; nothing is made.

        Raises:
            RunFolderError: It exists with anything in it, cannot be written, or the
                disk is nearly full.
            ConfigError: A setting holds a secret.
        """
        _refuse_secrets(config)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        default = f"{config.scenario_name}-{config.framework}-{stamp}"
        path = place = config.output / (config.name or default)
        try:
            if config.name and (path / "run.json").exists() and cls(path).is_done:
                path = place = config.output / f"{config.name}-{stamp}"
            path.exists()
        except OSError as error:  # e.g. its name is too long
            raise _unwritable(path, str(error.strerror)) from None
        if (path / "run.json").exists():
            raise RunFolderError(
                f"{path} already holds a run. Continue it with "
                f"`agentgym train --resume {path}` or choose another --name."
            )
        if path.is_dir() and any(path.iterdir()):
            raise RunFolderError(
                f"{path} holds other files. A run needs a folder of its own: "
                "choose another --name or --output."
            )
        while not place.exists():
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise _unwritable(path, f"{place} is not a writable folder")
        free = shutil.disk_usage(place).free
        if free < _MINIMUM_FREE_BYTES:
            raise RunFolderError(
                f"Only {free / 2**20:.0f} MB are free where {path} is; a run needs "
                f"{_MINIMUM_FREE_BYTES / 2**20:.0f} MB. Free some space or choose "
                "another disk with --output."
            )
        return cls(path)

    @classmethod
    def create(cls, config: TrainingConfig) -> Self:
        """Make a new folder for ``config``.

        Raises:
            RunFolderError: As :meth:`check_new`.
        """
        run = cls.check_new(config)
        existed = run.path.exists()
        try:
            make_private_folder(run.path)
            (run.path / "checkpoints").mkdir()
            run.write_record(status="running", config=config.model_dump(mode="json"))
        except OSError as error:
            if not existed:
                shutil.rmtree(run.path, ignore_errors=True)
            raise _unwritable(run.path, str(error.strerror)) from None
        return run

    @classmethod
    def open(cls, name: str | Path, output: Path = Path("runs")) -> Self:
        """Find a run by path, or by name below ``output``.

        Raises:
            NotFoundError: Names the nearest and those available.
        """
        for path in (Path(name), output / name):
            if os.path.exists(path / "run.json"):  # False where it may not be read
                return cls(path)
        raise NotFoundError(
            "run", str(name), [run.path.name for run in list_runs(output)]
        )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder against a second process; freed also by a kill.

        Raises:
            RunFolderError: Another process trains in this folder.
        """
        with open(self.path / ".lock", "a+", opener=private) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RunFolderError(
                    f"Process {file.read() or 'unknown'} is training in {self.path}. "
                    "Wait for it, end it, or choose another --name."
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def interrupted(self, lost: str = "") -> TrainingInterrupted:
        """Return the error that says where the run stands and how it goes on.

        Args:
            lost: Sentence on finished work that is lost; empty if there is none.
        """
        found = self.checkpoints()
        step = int(found[-1].name.removeprefix("step-")) if found else None
        return TrainingInterrupted(str(self.path), step, lost)

    def can_go_on(self) -> bool:
        """Say whether anything of it is finished, here or on another machine."""
        if not (self.path / "run.json").exists():
            return False
        return bool(self.checkpoints() or self.record().get("elsewhere"))

    def discard_unless_begun(self) -> None:
        """Remove the folder if no checkpoint was ever made in it.

        One that a machine was rented for stays: it has the record of that machine.
        """
        if not (self.can_go_on() or (self.path / "machine.json").exists()):
            shutil.rmtree(self.path, ignore_errors=True)

    @property
    def is_done(self) -> bool:
        """Whether the run has ended with a trained agent."""
        return bool(self.record().get("status") == "done")

    def record(self) -> dict[str, Any]:
        """Return run.json.

        Raises:
            RunFolderError: It is missing or corrupt, or holds no settings.
        """
        try:
            if not (self.path / "run.json").is_file():
                raise ValueError("run.json is not a file")
            data = parse_json((self.path / "run.json").read_text())
            if not isinstance(data, dict) or not isinstance(data.get("config"), dict):
                raise ValueError("run.json has no settings under 'config'")
            return data
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{self.path} holds no readable run: {error}. Put back its run.json, "
                "or remove the folder and start a new run."
            ) from None

    def write_record(self, **changes: Any) -> None:
        """Change fields of run.json."""
        path = self.path / "run.json"
        old = self.record() if path.exists() else {"created": _now()}
        write_json(path, {**old, **changes, "updated": _now()})

    @contextmanager
    def recorded(self, config: TrainingConfig, form: str = "") -> Iterator[None]:
        """Write into run.json that the run goes on, and then how it ended.

        Args:
            config: Every setting.
            form: Of the model's tool calls.
        """
        settings = config.model_dump(mode="json")
        self.write_record(status="running", config=settings, form=form)
        try:
            yield
        except (TrainingInterrupted, KeyboardInterrupt, OutputClosed):
            self.write_record(status="interrupted")
            raise
        except (LimitReached, StoreError, UnreachableError, OSError) as error:
            with suppress(OSError):  # the disk may be full
                self.write_record(status="interrupted", error=str(error))
            raise
        except BaseException as error:
            self.write_record(status="failed", error=str(error))
            raise
        self.write_record(status="done")

    def config(self) -> TrainingConfig:
        """Return the settings that the run was started with."""
        return TrainingConfig.restore(self.record()["config"])

    @contextmanager
    def new_checkpoint(self, state: RunState) -> Iterator[Path]:
        """Yield a folder that becomes ``state.step``'s checkpoint, atomically.

        Of the older checkpoints the newest, the best validated one and that of a warm
        start are kept, the others are removed afterwards.
        """
        try:
            with new_folder(self._checkpoint(state.step)) as folder:
                yield folder
                write_json(folder / "state.json", state.model_dump(mode="json"))
        except Exception as error:
            if disk_trouble(error):  # room for the next try
                self._keep_checkpoints(1, state)
            raise
        self._keep_checkpoints(_KEPT, state)

    def _keep_checkpoints(self, newest: int, state: RunState) -> None:
        """Remove all but some of the newest, the best validated and the first one."""
        kept = [self.best_checkpoint(state), self.first_checkpoint(state)]
        for old in self.checkpoints()[:-newest]:
            if old not in kept:
                shutil.rmtree(old, ignore_errors=True)

    def best_checkpoint(self, state: RunState) -> Path | None:
        """Return the checkpoint of the best validation; None if there is none."""
        path = self._checkpoint(state.watch.best_step)
        return path if path.exists() and state.watch.best is not None else None

    def first_checkpoint(self, state: RunState) -> Path | None:
        """Return the checkpoint of the warm start; None if there was none."""
        return self._checkpoint(0) if state.warmed else None

    def validation(self, step: int) -> Metrics | None:
        """Return the validation after a step; None if there was none."""
        for line in self.metrics():
            if line["step"] == step and "validation" in line:
                return Metrics.model_validate(line["validation"])
        return None

    def _checkpoint(self, step: int) -> Path:
        return self.path / "checkpoints" / f"step-{step:06d}"

    def checkpoints(self) -> list[Path]:
        """Return the complete checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def load_state(self) -> tuple[RunState, Path] | None:
        """Return the newest checkpoint's state and folder, None if there is none.

        Raises:
            CheckpointError: Its state cannot be read.
        """
        found = self.checkpoints()
        if not found:
            return None
        try:
            text = (found[-1] / "state.json").read_text()
            return RunState.model_validate_json(text), found[-1]
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"The checkpoint {found[-1]} is corrupt: {error}. Remove that folder "
                "to continue from the one before it."
            ) from None

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Append one step's line to metrics.jsonl, durably, or nothing of it."""
        self._append("metrics.jsonl", [line])

    def append_credit(self, lines: Iterable[dict[str, Any]]) -> None:
        """Append a step's lines to credit.jsonl, durably, or nothing of it.

        A step that a resumed run repeats has its lines twice; the later ones count.
        """
        self._append(CREDIT_FILE, lines)

    def _append(self, name: str, lines: Iterable[dict[str, Any]]) -> None:
        """Append lines to a file, durably, or nothing of them."""
        redactor = Redactor.of_environment()
        texts = (f"{redactor.written(json.dumps(line))}\n" for line in lines)
        left = "".join(texts).encode()
        with open(self.path / name, "ab", 0, opener=private) as file:
            before = file.tell()
            try:
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)  # no half a line
                raise

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl, a cut last one left out.

        Raises:
            RunFolderError: Another line holds no step; says which.
        """
        return self.metrics_from(0)[0]

    def metrics_from(self, start: int) -> tuple[list[dict[str, Any]], int]:
        """Return the lines of metrics.jsonl from a byte on, and where they end.

        Raises:
            RunFolderError: As :meth:`metrics`; lines are counted from ``start``.
        """
        path = self.path / "metrics.jsonl"
        data = path.read_bytes()[start:] if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.split(b"\n")[:-1]
        found = [
            _read_line(f"{path}, line {n}", line) for n, line in enumerate(lines, 1)
        ]
        return found, start + len(whole)

    def truncate_metrics(self, step: int) -> None:
        """Forget the lines of steps after ``step``, which will be done again."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_atomically(self.path / "metrics.jsonl", text)


def metrics_line(
    report: StepReport,
    validation: Metrics | None,
    forgetting: Forgetting | None = None,
) -> dict[str, Any]:
    """Return a step's line of metrics.jsonl.

    Args:
        report: Of the step; its fields are the line's.
        validation: The validation after the step, added as ``validation``; None if
            there was none, as after most steps.
        forgetting: As measured after a validation: its ``kl`` is added then.
    """
    line = asdict(report)
    if validation is not None:
        line["validation"] = validation.model_dump(mode="json")
        if forgetting is not None and forgetting.kl is not None:
            line["forgetting_kl"] = forgetting.kl
    return line


def _read_line(where: str, line: bytes) -> dict[str, Any]:
    try:
        step = parse_json(line)
        if not isinstance(step, dict) or not isinstance(step.get("step"), int):
            raise ValueError("it has no number under 'step'")
        return step
    except ValueError as error:
        raise RunFolderError(
            f"{where}, holds no step: {error}. Remove that line to do without it."
        ) from None


def _refuse_secrets(config: TrainingConfig) -> None:
    """Check that a run can be resumed from settings without secrets."""
    redactor = Redactor.of_environment()
    for name, value in config.model_dump(mode="json").items():
        if (clean := redactor.json(value)) != value:
            raise ConfigError(
                f"{name} = {clean!r:.200} holds a secret, and a run's folder keeps its "
                "settings. Put it into an environment variable, or into .env, and let "
                "your code read it."
            )


def _unwritable(path: Path, why: str) -> RunFolderError:
    return RunFolderError(
        f"Cannot write the run folder {path}: {why}. Choose another with --output."
    )


def list_runs(output: Path) -> list[RunFolder]:
    """Return the runs below ``output``, oldest first."""
    return [RunFolder(path.parent) for path in sorted(output.glob("*/run.json"))]


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
