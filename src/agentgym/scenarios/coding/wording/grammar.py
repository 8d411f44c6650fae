"""Patterns, frames and requests.

A pattern such as ``[open|read] {file}`` stands for the frames ``open {file}`` and
``read {file}``. A request is a frame with its slots filled, between a polite way in
and a polite way out. A frame that does not start with a plain command is a whole
sentence already and gets a greeting at most.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from agentgym.core.task import Split

_ALTERNATIVES = re.compile(r"\[([^\]]*)\]")
_NO_COMMAND = re.compile(
    r"({|(a|after|first|for|in|not|on|some|something|the|there|whichever|with)\b)"
)


@dataclass(frozen=True)
class Phrases:
    """The patterns of one family, split by split.

    What a held-out pattern stands for is taken out of the train frames, so that a
    combination can be held out of a product of alternatives.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    out_of_vocabulary: tuple[str, ...]

    def frames(self, split: Split) -> tuple[str, ...]:
        """Return the frames of a split, sorted."""
        return _frames(self, split)


@cache
def _frames(phrases: Phrases, split: Split) -> tuple[str, ...]:
    held = {
        Split.VALIDATION: phrases.validation,
        Split.TEST: phrases.test,
        Split.OUT_OF_VOCABULARY: phrases.out_of_vocabulary,
    }
    if split in held:
        return tuple(sorted(set(expand(held[split]))))
    taken = {frame for patterns in held.values() for frame in expand(patterns)}
    return tuple(sorted(set(expand(phrases.train)) - taken))


def expand(patterns: Sequence[str]) -> list[str]:
    """Return every frame that the patterns stand for."""
    return [frame for pattern in patterns for frame in _expand(pattern)]


@cache
def _expand(pattern: str) -> tuple[str, ...]:
    pieces = _ALTERNATIVES.split(pattern)
    choices = [
        piece.split("|") if index % 2 else [piece] for index, piece in enumerate(pieces)
    ]
    return tuple(" ".join("".join(c).split()) for c in itertools.product(*choices))


def request(
    rng: Random,
    phrases: Phrases,
    split: Split,
    slots: Mapping[str, str],
) -> str:
    """Compose a request.

    Args:
        rng: Where choices come from.
        phrases: The family's patterns.
        split: Whose frames and manners to use.
        slots: What the frame's slots stand for.
    """
    frame = rng.choice(phrases.frames(split))
    text = frame.format_map(slots)
    if frame[-1] in ".?" or _NO_COMMAND.match(frame):
        end = "" if frame[-1] in ".?" else "."
        text = f"{rng.choice(GREETINGS[split])}{text}{end}"
    else:
        before, after = rng.choice(MANNERS[split])
        text = before + text + after
    # A request may start with a path or a name, which must stay as it is.
    first = text.split(maxsplit=1)[0].rstrip(",:")
    return text[0].upper() + text[1:] if first.isalpha() and first.islower() else text


_TRAIN_MANNERS = (
    ("", "."),
    ("", "."),
    ("", "."),
    ("please ", "."),
    ("please ", "."),
    ("", ", please."),
    ("could you ", "?"),
    ("can you ", "?"),
    ("would you ", "?"),
    ("could you please ", "?"),
    ("I want you to ", "."),
    ("I need you to ", "."),
    ("I would like you to ", "."),
    ("now ", "."),
    ("next, ", "."),
    ("hi, ", "."),
    ("hi, please ", "."),
    ("go ahead and ", "."),
    ("", " for me."),
    ("", " now."),
    ("", ", thanks."),
    ("can you ", " for me?"),
)
MANNERS: dict[Split, tuple[tuple[str, str], ...]] = {
    Split.TRAIN: _TRAIN_MANNERS,
    Split.VALIDATION: (
        ("", "."),
        ("", "."),
        ("please ", "."),
        ("please ", "."),
        ("can you please ", "?"),
        ("now please ", "."),
        ("hi, could you ", "?"),
        ("please ", " now."),
        ("I want you to ", ", please."),
        ("would you please ", "?"),
        ("next, please ", "."),
        ("hi, can you ", "?"),
        ("please ", " for me."),
        ("I need you to ", ", thanks."),
    ),
    Split.TEST: (
        ("", "."),
        ("please ", "."),
        ("please, could you ", "?"),
        ("hi, I need you to ", "."),
        ("now, could you please ", "?"),
        ("go ahead and ", ", please."),
        ("hi, would you ", "?"),
        ("hi, I would like you to ", ", please."),
    ),
    Split.OUT_OF_VOCABULARY: (
        ("would you be willing to ", "?"),
        ("at your convenience, ", "."),
        ("may I ask you to ", "?"),
        ("listen, ", ", cheers."),
        ("it would be great if you could ", "."),
        ("I'd appreciate it if you could ", "."),
        ("", " at once."),
    ),
}
GREETINGS: dict[Split, tuple[str, ...]] = {
    Split.TRAIN: ("", "", "", "hi, ", "now, ", "please: "),
    Split.VALIDATION: ("", "", "next, ", "hi: "),
    Split.TEST: ("", "next: ", "hi, please: "),
    Split.OUT_OF_VOCABULARY: ("listen: ", "by the way, ", "heads up: "),
}
