"""Read a benchmark's data file, and find the code in a model's answer."""

import gzip
import io
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.core.task import Split
from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox import LazySandbox, SandboxResult

_FENCED = re.compile(
    r"```[\w+#.-]*[ \t]*\r?\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE
)


class Judge(ABC):
    """Decides whether code solves a problem."""

    @abstractmethod
    def accepts(self, sandbox: LazySandbox, code: str) -> bool:
        """Return whether the code passes all tests of the problem.

        Raises:
            SandboxError: The sandbox failed.
        """


@dataclass(frozen=True, kw_only=True)
class BenchmarkProblem:
    """One problem of a benchmark.

    Attributes:
        id: The id in the data file.
        family: The benchmark, or a part of it.
        instruction: The request to the model.
        prefix: Code that the model has to complete; "" if it writes everything.
        entry_point: The name that the answer must define; "" for a program.
        is_python: Whether the prefix is Python. Code that defines the entry point
            itself is then also put after the prefix: Python may define a name twice.
        judge: Judges the code of an answer.
        split: The problem's split in the benchmark; None if the benchmark has no
            splits.
        level: Difficulty from 1 to 3.
    """

    id: str
    family: str
    instruction: str
    judge: Judge
    prefix: str = ""
    entry_point: str = ""
    is_python: bool = False
    split: Split | None = None
    level: int = 1

    def code(self, answer: str) -> str:
        """Return the code in an answer, completed with the problem's prefix.

        The longest code block counts; without a block, the whole answer is code.
        """
        found = _FENCED.findall(answer)
        code = str(max(found, key=len)) if found else answer
        if not self.prefix or code.startswith(self.prefix):
            return code
        if self._is_whole(code):  # The prefix has imports that may be missing.
            return f"{self.prefix}\n{code}" if self.is_python else code
        return self.prefix + code

    def _is_whole(self, code: str) -> bool:
        """Return whether the code defines the entry point without the prefix."""
        name = re.escape(self.entry_point)
        defined = rf"^(?:async def|def|class|function|func|fn|pub fn) +{name}\b|"
        defined += rf"^(?:const|let|var)? ?{name} *="
        return re.search(defined, code, re.MULTILINE) is not None


def _values(path: str) -> Iterator[tuple[int, Any]]:
    """Yield the number and the JSON value of each line of a file.

    If the file is one JSON array, its items are yielded instead. Lines are read one at
    a time, since a file may have gigabytes.
    """
    with Path(path).open("rb") as raw:
        is_packed = raw.peek(2)[:2] == b"\x1f\x8b"
        data = gzip.GzipFile(fileobj=raw) if is_packed else raw
        text = io.TextIOWrapper(data, "utf-8-sig", newline="\n")
        begun = False
        for number, line in enumerate(text, 1):
            if not begun and line.lstrip().startswith("["):
                yield from enumerate(json.loads(line + text.read()), 1)
            elif line.strip():
                yield number, _object_of(line, number)
            begun = begun or bool(line.strip())


def _object_of(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None


def read_lines(path: str, benchmark: str, source: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines or JSON file, which may be gzipped.

    Each object has its file and line under the key ``""``, for error messages.

    Args:
        path: The file; empty if none was given.
        benchmark: Title of the benchmark.
        source: Description of the data's source.

    Raises:
        UsageError: The file is missing, empty, or in another format.
    """
    if not path:
        raise UsageError(
            f"{benchmark} needs its data file: --data FILE. It comes from {source}."
        )
    try:
        values = list(_values(path))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}. The data of "
            f"{benchmark} come from {source}."
        ) from None
    except (EOFError, zlib.error) as error:
        raise UsageError(
            f"{path} is not a whole gzip file: {error} Download it again. The data of "
            f"{benchmark} come from {source}."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not JSON Lines: {error}. The data of {benchmark} come from "
            f"{source}."
        ) from None
    if not values:
        raise UsageError(f"{path} is empty. {benchmark} comes from {source}.")
    for number, value in values:
        if not isinstance(value, dict):
            raise UsageError(f"{path}, line {number} is not an object.")
        yield {"": f"{path}, line {number}", **value}


def field(row: Mapping[str, Any], name: str, kind: type, source: str) -> Any:
    """Return a field of an object from :func:`read_lines`.

    Raises:
        UsageError: The field is missing, or of another type than ``kind``. The message
            has ``source``, which describes where the data come from.
    """
    value = row.get(name)
    if not isinstance(value, kind):
        raise UsageError(
            f"{row['']} is not of this benchmark: its field {name!r} must be of the "
            f"type {kind.__name__}, not {type(value).__name__}. The data come from "
            f"{source}."
        )
    return value


def texts(row: Mapping[str, Any], name: str, source: str) -> list[str]:
    """Return a field that must be a list of texts.

    Raises:
        UsageError: The field is missing, or not a list of texts.
    """
    values = field(row, name, list, source)
    if not all(isinstance(value, str) for value in values):
        raise UsageError(f"{row['']}: its field {name!r} must be a list of texts.")
    return list(values)


def checked(result: SandboxResult) -> SandboxResult:
    """Return the result, or raise an error if the sandbox itself failed.

    Raises:
        SandboxError: The sandbox failed. A failed program is not an error.
    """
    if result.status == "sandbox_error":
        raise SandboxError(f"The sandbox failed: {result.error}")
    return result
