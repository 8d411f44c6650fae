"""Read a benchmark's data file, and find the code in a model's answer."""

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.core.task import Split
from agentgym.errors import UsageError
from agentgym.sandbox import Sandbox

_FENCED = re.compile(
    r"```[\w+#.-]*[ \t]*\r?\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE
)


Judge = Callable[[Sandbox, str], bool]
"""Runs the tests of one problem on code, and returns whether it passes all."""


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


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's data file.

    Attributes:
        place: The file and the line, for error messages.
        source: Where the benchmark's data come from, for error messages.
    """

    values: dict[str, Any]
    place: str
    source: str

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field that the line may lack."""
        return self.values.get(name, default)

    def field(self, name: str, kind: type = str) -> Any:
        """Return the value of a field after a check of its type."""
        value = self.values.get(name)
        if not isinstance(value, kind):
            wrong = f"must be of the type {kind.__name__}, not {type(value).__name__}"
            raise self.error(f"its field {name!r} {wrong}")
        return value

    def texts(self, name: str) -> list[str]:
        """Return the value of a field after a check that it is a list of texts."""
        values: list[str] = self.field(name, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"its field {name!r} must be a list of texts")
        return values

    def error(self, problem: str) -> UsageError:
        """Return the error for a line of another format."""
        return UsageError(
            f"{self.place} is not of this benchmark: {problem}. The data come from "
            f"{self.source}."
        )


def read_lines(path: str, benchmark: str, source: str) -> Iterator[Row]:
    """Yield the objects of a (gzipped) JSON Lines or JSON file."""
    origin = f"The data of {benchmark} come from {source}."
    if not path:
        raise UsageError(f"{benchmark} needs its data file: --data FILE. {origin}")
    try:
        values = list(_values(path))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be read as JSON Lines: {error}. {origin}"
        ) from None
    if not values:
        raise UsageError(f"{path} is empty. {origin}")
    for number, value in values:
        row = Row(value, f"{path}, line {number}", source)
        if not isinstance(value, dict):
            raise row.error("it is not an object")
        yield row


def _values(path: str) -> Iterator[tuple[int, Any]]:
    """Yield number and JSON value of each line, or of each item of a JSON array."""
    with Path(path).open("rb") as raw:
        is_packed = raw.peek(2)[:2] == b"\x1f\x8b"
        data = gzip.GzipFile(fileobj=raw) if is_packed else raw
        text = io.TextIOWrapper(data, "utf-8-sig", newline="\n")
        for number, line in enumerate(text, 1):
            if number == 1 and line.lstrip().startswith("["):
                yield from enumerate(json.loads(line + text.read()), 1)
            elif line.strip():
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from None
