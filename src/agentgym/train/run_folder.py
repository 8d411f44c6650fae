"""RunFolder: write, lock and read the files of a run."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agentgym.core.files import (
    disk_trouble,
    folder_problem,
    new_folder,
    parse_json,
    remove_folder,
    write_atomically,
    write_json,
)
from agentgym.errors import (
    CheckpointError,
    ConfigError,
    LimitReached,
    MachineTakenError,
    NotFoundError,
    OutputClosed,
    RunFolderError,
    StoreError,
    TrainingInterrupted,
    UnreachableError,
    first_line,
)
from agentgym.security.files import make_private_folder, private
from agentgym.security.redaction import Redactor

if TYPE_CHECKING:
    from agentgym.core.config import TrainingConfig
    from agentgym.evaluate.events import StepReport
    from agentgym.evaluate.metrics import Metrics
    from agentgym.train.forgetting import Forgetting
    from agentgym.train.run_state import RunState

_MINIMUM_FREE_BYTES = 200 * 2**20
_KEPT = 2  # number of checkpoints
_PAUSES = (LimitReached, MachineTakenError, StoreError, UnreachableError, OSError)
"""Errors after which a run counts as interrupted: it can be resumed."""
CREDIT_FILE = "credit.jsonl"
RESULT_FILE = "result.json"


@dataclass(frozen=True)
class RunFolder:
    """Paths and records of one run, in the folder ``path``.

    ::

        run.json            settings, status (running, interrupted, failed, done)
        metrics.jsonl       one line a step, see :func:`metrics_line`
        credit.jsonl        how each model call was trained, see :func:`credit_lines`
        rollouts.db         every rollout, model call, tool call and reward (SQLite)
        checkpoints/        step-000012/: the two newest and that of the best validation
        tensorboard/        the same metrics as curves
        agent/              the trained agent, once done
        result.json         metrics before and after training, once done
    """

    path: Path

    @classmethod
    def check_new(cls, config: "TrainingConfig") -> Self:
        """Check that a new run's folder can be created; return the folder."""
        _refuse_secrets(config)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        default = f"{config.scenario_name}-{config.framework}-{stamp}"
        path = place = config.output / (config.name or default)
        if config.name and (path / "run.json").exists() and cls(path).is_done:
            path = place = config.output / f"{config.name}-{stamp}"
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
        if (why := folder_problem(place)) is not None:
            raise _unwritable(path, f"{place} is not a writable folder ({why})")
        free = shutil.disk_usage(place).free
        if free < _MINIMUM_FREE_BYTES:
            raise RunFolderError(
                f"Only {free / 2**20:.0f} MB are free where {path} is; a run needs "
                f"{_MINIMUM_FREE_BYTES / 2**20:.0f} MB. Free some space or choose "
                "another disk with --output."
            )
        return cls(path)

    @classmethod
    def create(cls, config: "TrainingConfig") -> Self:
        """Create the folder of a new run; raise the errors of :meth:`check_new`."""
        from agentgym.train.input_digests import input_digests  # it reads tasks files

        run = cls.check_new(config)
        existed = run.path.exists()
        try:
            make_private_folder(run.path)
            (run.path / "checkpoints").mkdir()
            run.write_record(
                status="running",
                config=config.model_dump(mode="json"),
                inputs=input_digests(config),
            )
        except OSError as error:
            if not existed:
                shutil.rmtree(run.path, ignore_errors=True)
            raise _unwritable(run.path, str(error.strerror)) from None
        return run

    @classmethod
    def open(cls, name: str | Path, output: Path = Path("runs")) -> Self:
        """Find a run by path, or by name below ``output``."""
        for path in (Path(name), output / name):
            if os.path.exists(path / "run.json"):  # False if it may not be read
                return cls(path)
        known = [run.path.name for run in list_runs(output)]
        raise NotFoundError("run", str(name), known)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder against other processes within the block.

        Raise RunFolderError if another process holds the lock. The lock ends with the
        process, even if it is killed.
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
        """Return the error of an interrupted run; its message says how to resume."""
        found = self.checkpoints()
        step = int(found[-1].name.removeprefix("step-")) if found else None
        return TrainingInterrupted(str(self.path), step, lost)

    def can_go_on(self) -> bool:
        """Return whether the run can be resumed, on this or on another machine."""
        if not (self.path / "run.json").exists():
            return False
        return bool(self.checkpoints() or self.record().get("elsewhere"))

    def discard_unless_begun(self) -> None:
        """Remove the folder unless the run can be resumed."""
        if not (self.can_go_on() or (self.path / "machine.json").exists()):
            shutil.rmtree(self.path, ignore_errors=True)

    @property
    def is_done(self) -> bool:
        """Whether the run has finished with a trained agent."""
        return bool(self.record().get("status") == "done")

    def record(self) -> dict[str, Any]:
        """Return the content of run.json, or raise RunFolderError."""
        try:
            if not (self.path / "run.json").is_file():
                raise ValueError("run.json is not a file")
            data = parse_json((self.path / "run.json").read_text(encoding="utf-8"))
            if not isinstance(data, dict) or not isinstance(data.get("config"), dict):
                raise ValueError("run.json has no settings under 'config'")
            return data
        except (OSError, ValueError) as error:
            raise RunFolderError(
                f"{self.path} holds no readable run: {error}. Put back its run.json, "
                "or remove the folder and start a new run."
            ) from None

    def write_record(self, **changes: Any) -> None:
        """Set the fields ``changes`` of run.json, and keep all others."""
        path = self.path / "run.json"
        old = self.record() if path.exists() else {"created": _now()}
        write_json(path, {**old, **changes, "updated": _now()})

    @contextmanager
    def recorded(self, config: "TrainingConfig", form: str = "") -> Iterator[None]:
        """Record settings and status in run.json: ``running`` within the block."""
        settings = config.model_dump(mode="json")
        self.write_record(status="running", config=settings, form=form)
        try:
            yield
        except (TrainingInterrupted, KeyboardInterrupt, OutputClosed):
            self.write_record(status="interrupted")
            raise
        except _PAUSES as error:
            with suppress(OSError):  # the disk may be full
                self.write_record(status="interrupted", error=str(error))
            raise
        except BaseException as error:
            self.write_record(status="failed", error=str(error))
            raise
        self.write_record(status="done")

    def config(self) -> "TrainingConfig":
        """Return the run's settings from run.json."""
        from agentgym.core.config import TrainingConfig

        return TrainingConfig.restore(self.record()["config"])

    @contextmanager
    def new_checkpoint(self, state: "RunState") -> Iterator[Path]:
        """Yield a temporary folder, which becomes a checkpoint when the block ends.

        Then old checkpoints are removed. The two newest, that of the best validation
        and that of a warm start are kept.
        """
        try:
            with new_folder(self._checkpoint(state.step)) as folder:
                yield folder
                write_json(folder / "state.json", state.model_dump(mode="json"))
        except Exception as error:
            if disk_trouble(error):  # room for the next attempt
                self._keep_checkpoints(1, state)
            raise
        self._keep_checkpoints(_KEPT, state)

    def _keep_checkpoints(self, newest: int, state: "RunState") -> None:
        """Remove old checkpoints."""
        kept = [self.best_checkpoint(state), self.first_checkpoint(state)]
        for old in self.checkpoints()[:-newest]:
            if old not in kept:
                remove_folder(old)

    def best_checkpoint(self, state: "RunState") -> Path | None:
        """Return the checkpoint of the best validation; None if it does not exist."""
        path = self._checkpoint(state.watch.best_step)
        return path if path.exists() and state.watch.best is not None else None

    def first_checkpoint(self, state: "RunState") -> Path | None:
        """Return the checkpoint of the warm start; None without a warm start."""
        return self._checkpoint(0) if state.warmed else None

    def _checkpoint(self, step: int) -> Path:
        return self.path / "checkpoints" / f"step-{step:06d}"

    def checkpoints(self) -> list[Path]:
        """Return the complete checkpoints, oldest first."""
        return sorted((self.path / "checkpoints").glob("step-*"))

    def load_state(self) -> "tuple[RunState, Path] | None":
        """Return state and folder of the newest checkpoint; None if there is none."""
        from agentgym.train.run_state import RunState

        found = self.checkpoints()
        if not found:
            return None
        try:
            text = (found[-1] / "state.json").read_text(encoding="utf-8")
            return RunState.model_validate_json(text), found[-1]
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"The checkpoint {found[-1]} is corrupt: {first_line(error)}. "
                "Remove that folder to continue from the one before it."
            ) from None

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Append a step's line to metrics.jsonl and flush it to disk."""
        self._append("metrics.jsonl", [line])

    def append_credit(self, lines: Iterable[dict[str, Any]]) -> None:
        """Append a step's lines to credit.jsonl and flush them to disk.

        If a resumed run repeats a step, the later lines count.
        """
        self._append(CREDIT_FILE, lines)

    def _append(self, name: str, lines: Iterable[dict[str, Any]]) -> None:
        """Append lines to a file and flush them to disk; on failure, change nothing."""
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
                file.truncate(before)  # no partial line
                raise

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl; ignore an incomplete last line."""
        path = self.path / "metrics.jsonl"
        data = path.read_bytes() if path.exists() else b""
        lines = data.split(b"\n")[:-1]
        return [
            _read_line(f"{path}, line {n}", line) for n, line in enumerate(lines, 1)
        ]

    def truncate_metrics(self, step: int) -> None:
        """Remove the lines of steps after ``step``, which the resumed run repeats."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_atomically(self.path / "metrics.jsonl", text)


def metrics_line(
    report: "StepReport",
    validation: "Metrics | None",
    forgetting: "Forgetting | None" = None,
) -> dict[str, Any]:
    """Return a step's line of metrics.jsonl."""
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


def _refuse_secrets(config: "TrainingConfig") -> None:
    """Raise ConfigError if a setting contains a secret."""
    redactor = Redactor.of_environment()
    for name, value in config.flat(config.model_dump(mode="json")).items():
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


def read_result[Read](run: Path, read: Callable[[Any], Read]) -> Read | None:
    """Convert a run's result.json with ``read``; None before the run's end.

    Raises:
        RunFolderError: ``result.json`` exists but cannot be read.
    """
    path = run / RESULT_FILE
    try:
        return read(parse_json(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be read: {error}. Make it readable, or move it away to do "
            "without the result."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        missing = f"{error} is missing" if isinstance(error, KeyError) else error
        raise RunFolderError(
            f"{path} cannot be read: {missing}. Another version of agentgym "
            "may have written it: install that one to see the result, or move the file "
            "away to do without it."
        ) from None


def list_runs(output: Path) -> list[RunFolder]:
    """Return the runs in the folder ``output``, sorted by folder name."""
    return [RunFolder(path.parent) for path in sorted(output.glob("*/run.json"))]


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
