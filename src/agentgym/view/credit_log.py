"""CreditLog: read ``credit.jsonl``, which has measurements of each trained call."""

from collections.abc import Iterator
from os import SEEK_CUR
from pathlib import Path
from typing import Any, NamedTuple

import orjson

_CHUNK_BYTES = 2**20


class Learned(NamedTuple):
    """Sums over the trained tokens of some model calls, in nats, and numbers of tokens.

    Attributes:
        gap: Sum over the tokens of the absolute difference between the log-probability
            at sampling and that computed in training.
        entropy: Sum of the policy's entropies before the update.
        kl: Sum of the k3 estimates of KL between the sampling and the updated policy;
            only part of a batch is measured.
    """

    gap: float = 0.0
    gap_tokens: int = 0
    entropy: float = 0.0
    entropy_tokens: int = 0
    kl: float = 0.0
    kl_tokens: int = 0


class CreditLog:
    """Reads each complete line of ``credit.jsonl`` once; the file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0

    def read(self) -> Iterator[list[tuple[str, list[Learned | None]]]]:
        """Yield new lines in batches, each as a rollout id and sums per model call.

        The sums are None for a call that was not trained or not measured. A line whose
        calls all have None is left out.
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
                    yield [found for line in lines if (found := _read(line))]
                    if not lines:
                        return
        except OSError:
            return


def _read(line: bytes) -> tuple[str, list[Learned | None]] | None:
    """Return a line's rollout id and sums; None if it has no sums or cannot be read."""
    try:
        read = orjson.loads(line)
        sums = [_sums(call) for call in read["calls"]]
        return (str(read["rollout"]), sums) if any(sums) else None
    except (ValueError, KeyError, TypeError):
        return None


def _sums(call: dict[str, Any]) -> Learned | None:
    tokens = sum(end - start for start, end in call.get("spans", ()))
    gaps, entropy, kl = call.get("gaps"), call.get("entropy"), call.get("kl")
    if not tokens or (gaps is None and entropy is None and kl is None):
        return None
    return Learned(
        sum(map(abs, gaps or ())),  # empty if all are nearly zero
        0 if gaps is None else tokens,
        (entropy or 0.0) * tokens,
        0 if entropy is None else tokens,
        (kl or 0.0) * tokens,
        0 if kl is None else tokens,
    )
