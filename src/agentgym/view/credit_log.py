"""CreditLog: the recorded differences of log-probabilities, sampler to learner."""

from collections.abc import Iterator
from os import SEEK_CUR
from pathlib import Path
from typing import Any, NamedTuple

import orjson

_CHUNK_BYTES = 2**20


class Gap(NamedTuple):
    """The difference between the log-probabilities of sampler and learner.

    Attributes:
        nats: Sum over the trained tokens, in nats.
        tokens: Number of trained tokens.
    """

    nats: float
    tokens: int


class CreditLog:
    """Reads the complete lines of ``credit.jsonl``, each once.

    Args:
        path: The file; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0

    def read(self) -> Iterator[list[tuple[str, list[Gap | None]]]]:
        """Yield new lines in batches: the rollout, and the gap of each model call.

        The gap is None for a call that was not trained or not measured. Lines of runs
        without gaps are left out.
        """
        try:
            with open(self._path, "rb") as file:
                if self._path.stat().st_size < self._end:  # it was replaced
                    self._end = 0
                file.seek(self._end)
                while lines := file.readlines(_CHUNK_BYTES):
                    if not lines[-1].endswith(b"\n"):  # it is being written
                        file.seek(-len(lines.pop()), SEEK_CUR)
                    self._end = file.tell()
                    yield [found for line in lines if (found := _gaps(line))]
                    if not lines:
                        return
        except OSError:
            return


def _gaps(line: bytes) -> tuple[str, list[Gap | None]] | None:
    """Return a line's rollout and gaps; None if there are none or it is truncated."""
    try:
        read = orjson.loads(line)
        gaps = [_gap(call) for call in read["calls"]]
        return (str(read["rollout"]), gaps) if any(gaps) else None
    except (ValueError, KeyError, TypeError):
        return None


def _gap(call: dict[str, Any]) -> Gap | None:
    if (known := call.get("gaps")) is None:
        return None
    if known:
        return Gap(sum(map(abs, known)), len(known))
    tokens = sum(end - start for start, end in call["spans"])  # all gaps are almost 0
    return Gap(0.0, tokens) if tokens else None
