"""WordIndex: find the rows that contain given words, without reading their texts."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class WordIndex:
    """Finds the rows whose texts contain given words; kept in memory.

    Words are separated by whitespace. A searched word also matches parts of longer
    words: it is compared with all distinct words, which are few even in many texts.
    """

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = {}
        self._open: Mapping[int, str] = {}
        self._size = 0

    def add(self, row: int, text: str) -> None:
        """Add the words of a row whose text will not change any more."""
        for word in set(text.split()):
            rows = self._rows.get(word)
            if rows is None:
                rows = self._rows[word] = array("I")
            rows.append(row)
        self._size = max(self._size, row + 1)

    def replace_open(self, texts: Mapping[int, str]) -> None:
        """Set the texts of all rows that may still change; forget their old texts."""
        self._open = texts
        self._size = max(self._size, *(row + 1 for row in texts), 0)

    def find(self, words: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Return for each row whether its text contains all ``words``."""
        kept = np.ones(self._size, dtype=bool)
        for wanted in words:
            has = np.zeros(self._size, dtype=bool)
            for word, rows in self._rows.items():
                if wanted in word:
                    has[np.frombuffer(rows, dtype=np.uint32)] = True
            for row, text in self._open.items():
                has[row] |= wanted in text
            kept &= has
        return kept
