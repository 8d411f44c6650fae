"""What the corpus must not hold: the scenarios' held-out phrases and names."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from agentgym.core.task import Split
from agentgym.packs.coding.families import FAMILIES, REFERENCES
from agentgym.packs.coding.names import NAMES
from agentgym.packs.customer_support.story import FORMS, INTENTS
from agentgym.packs.customer_support.story import NAMES as SUPPORT_NAMES
from recipes.nano import pools

type Frame = tuple[tuple[str, ...], tuple[str, ...]]
"""A frame's text before, between and after its slots, and the slots' names."""

HELD = (Split.VALIDATION, Split.TEST, Split.OUT_OF_VOCABULARY)

# What may stand in a slot. A frame that is nothing but everyday words and a slot
# ("fetch {file}") counts only with what the scenarios would put there.
_OTHER_SLOTS = {
    "name": r"\w+_\w+",
    "args": r"\S+(?: (?:and )?\S+)?",
    "test": r"test_\w+",
    "street": r"\w+ \d+",
    "priority": r"(?:low|medium|high)",
    "text": r'[^"]+',
    "subject": r'[^"]+',
}
_REFERRED = {
    "file": ("module", "tests", "script"),
    "script": ("script",),
    "tests": ("tests_of",),
    "dir": ("folder", "root"),
    "order": ("order", "vague", "vague_item"),
}
"""The sections of the scenarios' forms that a slot is filled with."""


@dataclass(frozen=True)
class Held:
    """What finds held-out words, names and phrases."""

    names: re.Pattern[str]
    phrases: "Phrases"

    @classmethod
    def of_scenarios(cls) -> "Held":
        """Collect what the scenarios hold out, and this corpus's own held-out words."""
        found = {*pools.HELD_OUT_WORDS, *(p.lower() for p in pools.HELD_OUT_PEOPLE)}
        for split in HELD:
            for names in (NAMES[split], SUPPORT_NAMES[split]):
                found |= {word.lower() for word in names.words()}
        return cls(name_pattern(found), Phrases(held_frames()))

    def found_in(self, text: str) -> bool:
        """Return whether ``text`` holds anything that is held out."""
        return bool(self.names.search(text.lower())) or self.phrase_in(text)

    def phrase_in(self, text: str) -> bool:
        """Return whether a user's turn holds a held-out phrase."""
        return any(map(self.phrases.are_in, user_turns(text)))


def held_frames() -> Iterator[str]:
    """Yield every held-out frame of the scenarios' grammars."""
    yield from coding_frames(HELD)
    for phrases in INTENTS.values():
        for split in HELD:
            yield from phrases.frames(split)


def coding_frames(splits: Sequence[Split]) -> Iterator[str]:
    """Yield every frame of the coding scenario's grammars in ``splits``."""
    for family in FAMILIES:
        for split in splits:
            yield from family.phrases.frames(split)


def user_turns(text: str) -> list[str]:
    """Return what the user says in a conversation, in lower case on one line each."""
    turns = re.findall(r"<\|user\|>(.*?)<\|end\|>", text, re.DOTALL)
    return [_plain(turn) for turn in turns]


def name_pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Return what finds one of ``words`` in text of lower case."""
    names = "|".join(map(re.escape, sorted(words)))
    return re.compile(rf"(?<![a-z])(?:{names})(?![a-z])")


class Phrases:
    """Finds frames, their slots filled, in a user's turn.

    A frame's pattern is compiled only where all text between its slots occurs: one
    pattern of all frames takes minutes to compile while coverage looks on.

    Args:
        frames: The frames.
        slot: Pattern of what may stand in a slot without quotes; if empty, what the
            coding scenario would put there.
    """

    def __init__(self, frames: Iterable[str], slot: str = "") -> None:
        self._frames = {_between_and_slots(frame) for frame in frames}
        self._slot = slot
        self._compiled: dict[Frame, re.Pattern[str]] = {}

    def are_in(self, turn: str) -> bool:
        """Return whether a turn of :func:`user_turns` holds any of them."""
        return any(
            all(text in turn for text in frame[0]) and self._pattern(frame).search(turn)
            for frame in self._frames
        )

    def _pattern(self, frame: Frame) -> re.Pattern[str]:
        if frame not in self._compiled:
            between, slots = frame
            filled = [_slot_pattern(name, self._slot) for name in slots]
            made = map(
                "".join, zip(map(re.escape, between), [*filled, ""], strict=True)
            )
            self._compiled[frame] = re.compile(rf"(?<!\w){''.join(made)}(?!\w)")
        return self._compiled[frame]


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _between_and_slots(frame: str) -> Frame:
    quoted = re.sub(r'"\{\w+\}"', '"{text}"', _plain(frame).rstrip(".?"))
    parts = re.split(r"\{(\w+)\}", quoted)
    return tuple(parts[::2]), tuple(parts[1::2])


def _slot_pattern(name: str, slot: str) -> str:
    if slot and name != "text":
        return slot
    if name in _REFERRED:
        return _referring(_REFERRED[name])
    return _OTHER_SLOTS.get(name, r"\S+")


@cache
def _referring(sections: tuple[str, ...]) -> str:
    """Return what matches every way to refer to something, of any split."""
    forms = {
        form
        for section in sections
        for split in Split
        for form in (REFERENCES | FORMS)[section][split]
    }
    filled = (re.sub(r"\\{\w+\\}", r"\\S+", re.escape(f.lower())) for f in forms)
    return f"(?:{'|'.join(sorted(filled, key=len, reverse=True))})"
