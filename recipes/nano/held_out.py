"""What the corpus must not hold: the scenarios' held-out phrases and names."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from agentgym.core.task import Split
from agentgym.scenarios.coding.families import FAMILIES
from agentgym.scenarios.coding.names import NAMES
from agentgym.scenarios.coding.wording import REFERENCES
from agentgym.scenarios.customer_support.names import NAMES as SUPPORT_NAMES
from agentgym.scenarios.customer_support.wording import FORMS, INTENTS
from recipes.nano import pools

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
    """Patterns that find held-out words, names and phrases."""

    names: re.Pattern[str]
    phrases: re.Pattern[str]

    @classmethod
    def of_scenarios(cls) -> "Held":
        """Collect what the scenarios hold out, and this corpus's own held-out words."""
        found = {*pools.HELD_OUT_WORDS, *(p.lower() for p in pools.HELD_OUT_PEOPLE)}
        for split in HELD:
            for names in (NAMES[split], SUPPORT_NAMES[split]):
                found |= {word.lower() for word in names.words()}
        return cls(name_pattern(found), phrase_pattern(held_frames()))

    def found_in(self, text: str) -> bool:
        """Return whether ``text`` holds anything that is held out."""
        return bool(self.names.search(text.lower())) or self.phrase_in(text)

    def phrase_in(self, text: str) -> bool:
        """Return whether a user's turn holds a held-out phrase."""
        return any(self.phrases.search(turn) for turn in user_turns(text))


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


def phrase_pattern(frames: Iterable[str], slot: str = "") -> re.Pattern[str]:
    """Return what finds one of ``frames``, its slots filled, in a user's turn.

    Args:
        frames: The frames.
        slot: Pattern of what may stand in a slot without quotes; if empty, what the
            coding scenario would put there.
    """
    starts = defaultdict(set)  # of what goes on alike: compiling all is slow
    for frame in frames:
        start, rest = _frame_pattern(frame, slot)
        starts[rest].add(start)
    phrases = [f"(?:{'|'.join(sorted(starts[r]))}){r}" for r in sorted(starts)]
    return re.compile(rf"(?<!\w)(?:{'|'.join(phrases)})(?!\w)")


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _frame_pattern(frame: str, slot: str) -> tuple[str, str]:
    """Return the patterns of a frame's text before its first slot, and of the rest."""
    quoted = re.sub(r'"\{\w+\}"', '"{text}"', _plain(frame).rstrip(".?"))
    parts = re.split(r"\{(\w+)\}", quoted)
    made = [
        re.escape(part) if index % 2 == 0 else _slot_pattern(part, slot)
        for index, part in enumerate(parts)
    ]
    return made[0], "".join(made[1:])


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
