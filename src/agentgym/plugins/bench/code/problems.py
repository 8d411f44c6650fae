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
from agentgym.errors import UsageError
from agentgym.sandbox import Sandbox

_FENCED = re.compile(
    r"```[\w+#.-]*[ \t]*\r?\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE
)


class Judge(ABC):
    """Base class for the tests of one problem, which accept or reject code."""

    @abstractmethod
    def accepts(self, sandbox: Sandbox, code: str) -> bool:
        """Return whether the code passes all tests of the problem.

        Raises:
            SandboxError: The sandbox failed.
        """


@dataclass(frozen=True, kw_only=True)
class BenchmarkProblem:
    """One problem of a benchmark.

    Attributes:
        prefix: Code that the model has to complete; "" if it writes all code.
        entry_point: Name of the function that the answer must define; "" if the answer
            is a program.
        is_python: Whether the prefix is Python. If it is, the prefix is put before each
            answer that lacks it, since it may have imports. If it is not, it is left
            out if the answer defines the function itself.
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
        """Return an answer's longest code block, with the prefix if it lacks it."""
        found = _FENCED.findall(answer)
        code = str(max(found, key=len)) if found else answer
        if not self.prefix or code.startswith(self.prefix):
            return code
        if self._is_whole(code):  # The prefix has imports that may be missing.
            return f"{self.prefix}\n{code}" if self.is_python else code
        return self.prefix + code

    def _is_whole(self, code: str) -> bool:
        """Return whether the code defines the entry point itself."""
        name = re.escape(self.entry_point)
        defined = rf"^(?:async def|def|class|function|func|fn|pub fn) +{name}\b|"
        defined += rf"^(?:const|let|var)? ?{name} *="
        return re.search(defined, code, re.MULTILINE) is not None


def _values(path: str) -> Iterator[tuple[int, Any]]:
    """Yield number and JSON value of each line, or of each item of a JSON array."""
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
    """Yield the objects of a (gzipped) JSON Lines or JSON file.

    The key ``""`` of each has its file and line, for error messages.
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
    """Return the value of a field after a check of its type."""
    value = row.get(name)
    if not isinstance(value, kind):
        raise UsageError(
            f"{row['']} is not of this benchmark: its field {name!r} must be of the "
            f"type {kind.__name__}, not {type(value).__name__}. The data come from "
            f"{source}."
        )
    return value


def texts(row: Mapping[str, Any], name: str, source: str) -> list[str]:
    """Return the value of a field after a check that it is a list of texts."""
    values = field(row, name, list, source)
    if not all(isinstance(value, str) for value in values):
        raise UsageError(f"{row['']}: its field {name!r} must be a list of texts.")
    return list(values)
