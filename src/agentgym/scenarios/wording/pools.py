"""Read pools of wording (lists of texts): text files, with own texts per split.

A file has ``[section]`` lines, each followed by the section's lines; ``#`` starts a
comment. ``test.txt`` has the test split's sections; many sections may be spread over
files, ``train_files.txt``, ``train_tests.txt`` and so on.
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
    """Return the sections of a folder's files, by section name.

    Raises:
        ValueError: A file lacks a section that another file has.
    """
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
