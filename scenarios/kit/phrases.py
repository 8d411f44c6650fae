"""Read words by split, and compose users' requests from patterns.

A pattern such as ``[open|read] {file}`` has the alternatives ``open {file}`` and
``read {file}``, which are called frames. A request is a frame whose slots, such as
``{file}``, are replaced by values. If a frame is a command, polite words are added
around it. If it is a complete sentence, at most a greeting is added.
"""

import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from agentgym.core.task import Split

Forms = Mapping[Split, tuple[str, ...]]
"""The lines of one section, by split."""

_SECTION = re.compile(r"\[(\w+)\]")


def read_tables(file: Path) -> dict[Split, dict[str, Any]]:
    """Return the tables of a TOML file, one per split."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    return {Split(name): table for name, table in found.items()}


def read_words(file: Path) -> dict[Split, dict[str, Any]]:
    """Return the tables of a TOML file, one per split; texts are split into words."""
    return {
        split: {
            name: tuple(words.split() if isinstance(words, str) else words)
            for name, words in table.items()
        }
        for split, table in read_tables(file).items()
    }


@cache
def read_pools(folder: Path) -> dict[str, Forms]:
    """Return the texts of a folder's files, by section and then by split.

    A file's name starts with the split, as in ``train_tests.txt``. It has sections: a
    line ``[name]``, and one text per line. A line that starts with ``#`` is a comment.
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


_ALTERNATIVES = re.compile(r"\[([^\]]*)\]")
_NO_COMMAND = re.compile(
    r"({|(a|after|first|for|in|not|on|some|something|the|there|whichever|with)\b)"
)
_AROUND = read_pools(Path(__file__).parent / "wording")
MANNERS: Forms = _AROUND["manners"]
"""Polite forms around a command; ``{request}`` is the placeholder of the command."""
GREETINGS: Forms = _AROUND["greetings"]
"""Greetings before a complete sentence."""


@dataclass(frozen=True, eq=False)
class Phrases:
    """The patterns for requests of one family (kind of task), by split."""

    # A frame that training and another split share is removed from training. So a
    # combination of words is kept for tests, although training has each of the words.
    patterns: Forms

    @cache  # noqa: B019 - the pools live as long as the process
    def frames(self, split: Split) -> tuple[str, ...]:
        """Return a split's frames (requests with slots such as ``{file}``), sorted."""
        frames = set(expand(self.patterns[split]))
        if split is Split.TRAIN:
            held = (self.patterns[other] for other in Split if other is not split)
            frames -= {frame for patterns in held for frame in expand(patterns)}
        return tuple(sorted(frames))


def read_phrases(folder: Path) -> dict[str, Phrases]:
    """Return the phrases of requests in a folder's files, by section."""
    return {name: Phrases(forms) for name, forms in read_pools(folder).items()}


def expand(patterns: Iterable[str]) -> list[str]:
    """Return all frames (requests with slots such as ``{file}``) of patterns."""
    return [frame for pattern in patterns for frame in _expand(pattern)]


def _expand(pattern: str) -> list[str]:
    pieces = _ALTERNATIVES.split(pattern)
    choices = [
        piece.split("|") if index % 2 else [piece] for index, piece in enumerate(pieces)
    ]
    return [" ".join("".join(c).split()) for c in itertools.product(*choices)]


def draw(rng: Random, split: Split, forms: Forms) -> str:
    """Return a random phrase of a split; half of the time, one of training."""
    if split is Split.TRAIN or rng.random() < 0.5:
        return rng.choice(forms[split])
    return rng.choice(forms[Split.TRAIN])


def request(
    rng: Random,
    phrases: Phrases,
    split: Split,
    slots: Mapping[str, str],
) -> str:
    """Return a request made from a random frame of a split, with polite words."""
    frame = rng.choice(phrases.frames(split))
    text = frame.format_map(slots)
    if frame[-1] in ".?" or _NO_COMMAND.match(frame):
        end = "" if frame[-1] in ".?" else "."
        text = rng.choice(GREETINGS[split]).format(request=text + end)
    else:
        text = rng.choice(MANNERS[split]).format(request=text)
    # A request may start with a path or a name, which must not be capitalized.
    first = text.split(maxsplit=1)[0].rstrip(",:")
    return text[0].upper() + text[1:] if first.isalpha() and first.islower() else text
