"""WordIndex: finds the rows that have some words, without reading their texts."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class WordIndex:
    """The rows of each word, in memory; words are separated by white space.

    A searched word is found within longer ones too: few different words stand in many
    texts, so all of them are looked through.
    """

    def __init__(self) -> None:
        self._rows: dict[str, array[int]] = {}
        self._open: Mapping[int, str] = {}
        self._size = 0

    def add(self, row: int, text: str) -> None:
        """Add the words of a row, whose text stays as it is."""
        for word in set(text.split()):
            rows = self._rows.get(word)
            if rows is None:
                rows = self._rows[word] = array("I")
            rows.append(row)
        self._size = max(self._size, row + 1)

    def replace_open(self, texts: Mapping[int, str]) -> None:
        """Set the texts by row that may still change; the ones before are forgotten."""
        self._open = texts
        self._size = max(self._size, *(row + 1 for row in texts), 0)

    def find(self, words: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Say of each row whether it has all of these words, each maybe in another."""
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
