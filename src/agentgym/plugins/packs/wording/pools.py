"""Read lists of texts for requests from files; each split has its own texts.

A file has sections: a line ``[name]``, and the texts of this section, one per line. A
line that starts with ``#`` is a comment. A file's name starts with the split, as in
``test.txt``. A split may have several files, such as ``train_files.txt`` and
``train_tests.txt``.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from agentgym.core.task import Split

Forms = Mapping[Split, tuple[str, ...]]
"""The lines of one section, by split."""

_SECTION = re.compile(r"\[(\w+)\]")


@cache
def read_pools(folder: Path) -> dict[str, Forms]:
    """Return the texts of a folder's files, by section and then by split."""
    found = {split: _sections(folder, split) for split in Split}
    for split, sections in found.items():
        if missing := found[Split.TRAIN].keys() ^ sections.keys():
            raise ValueError(
                f"{folder}: not in both train and {split.value}: {missing}"
            )
    return {
        name: {split: found[split][name] for split in Split}
        for name in found[Split.TRAIN]
    }


def _sections(folder: Path, split: Split) -> dict[str, tuple[str, ...]]:
    sections: dict[str, list[str]] = {}
    for path in sorted(folder.glob(f"{split.value}*.txt")):
        lines: list[str] = []
        for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
            if heading := _SECTION.fullmatch(line):
                lines = sections.setdefault(heading[1], [])
            elif line and not line.startswith("#"):
                lines.append(line)
    return {name: tuple(lines) for name, lines in sections.items()}
