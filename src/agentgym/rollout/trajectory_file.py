"""Read and write trajectories as JSON Lines."""

import json
import mmap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, Self

from pydantic import ValidationError

from agentgym.core.files import parse_json
from agentgym.core.registry import loaders
from agentgym.core.trajectory import Trajectory
from agentgym.errors import TrajectoryFileError, first_problem
from agentgym.security.redaction import Redactor, get_logger

logger = get_logger(__name__)

# AgentGym's own format, which `read_jsonl` reads; plug-ins register others.
OWN_FORMAT = "jsonl"
_FORMATS = "agentgym.trajectory_formats"


def formats() -> list[str]:
    """Return the names of all formats with a record a line, AgentGym's own first."""
    return [OWN_FORMAT, *loaders(_FORMATS)]


def form_of(path: Path) -> str:
    """Return the format that a file's name implies: ``atif`` for ``x.atif.json``."""
    named = [suffix.lstrip(".") for suffix in path.suffixes[-2:-1]]
    return next((name for name in named if name in formats()), OWN_FORMAT)


def _records(form: str) -> Callable[[Trajectory], list[Any]]:
    """Return the function that converts a trajectory to the records of a format."""
    if form == OWN_FORMAT:
        return lambda made: [made.to_dict()]
    found: Callable[[Trajectory], list[Any]] = loaders(_FORMATS)[form]()
    return found


class TrajectoryWriter:
    """Appends trajectories to a file and flushes each one.

    Killing the process loses at most the line being written. A truncated last line of
    an existing file is removed when the file is opened.

    Args:
        path: The file; it and its folder are created if missing.
        form: The format. None derives the format from the file's name, as
            :func:`form_of` does.
    """

    def __init__(self, path: Path, form: str | None = None) -> None:
        self._records = _records(form or form_of(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        self._redactor = Redactor.of_environment()
        self._file = path.open("a+b")
        _mend_last_line(path, self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, trajectory: Trajectory) -> None:
        """Append one trajectory with its secrets removed, and flush the file.

        Raises:
            OSError: The disk is full, or the file cannot be written.
        """
        for record in self._records(trajectory):
            line = self._redactor.record(json.dumps(record, ensure_ascii=False))
            self._file.write(line.encode("utf-8", "surrogatepass") + b"\n")
        self._file.flush()


def write_jsonl(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Append trajectories to a JSON Lines file; return how many were written."""
    count = 0
    with TrajectoryWriter(path) as writer:
        for trajectory in trajectories:
            writer.write(trajectory)
            count += 1
    return count


def read_jsonl(path: Path, *, strict: bool = True) -> list[Trajectory]:
    """Return the trajectories of a JSON Lines file.

    Args:
        path: The file.
        strict: Whether a broken line is an error; if not, it is logged and skipped.

    Raises:
        TrajectoryFileError: A line is truncated or not a trajectory. The message names
            the line, and the error's ``trajectories`` are those of all other lines.
        OSError: The file cannot be read.
    """
    trajectories, broken = scan_jsonl(path)
    if broken and strict:
        raise TrajectoryFileError(str(path), broken, trajectories)
    for line in broken:
        logger.warning("%s: %s", path, line)
    return trajectories


def scan_jsonl(path: Path) -> tuple[list[Trajectory], list[str]]:
    """Return a file's trajectories, and messages about its broken lines.

    Raises:
        OSError: The file cannot be read.
    """
    trajectories: list[Trajectory] = []
    broken: list[str] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                text = line.decode("utf-8", "surrogatepass")
                trajectories.append(Trajectory.from_dict(parse_json(text)))
                continue
            except ValidationError as error:
                problem = f"is not a trajectory ({first_problem(error)})"
            except ValueError:
                cut = not line.endswith(b"\n")
                problem = "was cut while it was written" if cut else "is not JSON"
            broken.append(f"line {number} {problem}")
    return trajectories, broken


def _mend_last_line(path: Path, file: BinaryIO) -> None:
    """End a file's last line with a newline; remove the line if it is not JSON."""
    if not path.stat().st_size:
        return
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.rfind(b"\n") + 1
    file.seek(start)
    rest = file.read()
    if not rest:
        return
    try:
        parse_json(rest)
    except ValueError:
        logger.warning("%s: removed a last line that was cut", path)
        file.truncate(start)
    else:
        file.write(b"\n")
