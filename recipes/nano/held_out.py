"""What the corpus must not hold: the scenarios' held-out phrases and names."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentgym.core.task import Split
from agentgym.scenarios.coding.families import FAMILIES
from agentgym.scenarios.coding.names import NAMES
from agentgym.scenarios.customer_support.names import NAMES as SUPPORT_NAMES
from agentgym.scenarios.customer_support.wording import INTENTS
from recipes.nano import pools

HELD = (Split.VALIDATION, Split.TEST, Split.OUT_OF_VOCABULARY)

# What may stand in a slot. A frame that is nothing but everyday words and a slot
# ("fetch {file}") counts only with what the scenarios would put there.
_PATH = r"[\w/.-]*\w\.py"
_FILE = rf"(?:(?:the |module |script |file )*{_PATH}|the \w+ (?:module|file|script|test file)\b[^.?!]*|module \w+|the test file of [^.?!]*)"
_SLOTS = {
    "file": _FILE,
    "script": _FILE,
    "tests": rf"(?:{_FILE}|the tests of \w+|the \w+ tests)",
    "dir": r"(?:(?:the |this |our )?(?:project |folder )?(?:whole |full |complete )?\w+/?(?: folder| subtree| area)?(?:, a folder)?(?: of our project| in its entirety)?)",
    "name": r"\w+_\w+",
    "args": r"\S+(?: (?:and )?\S+)?",
    "test": r"test_\w+",
    "order": r"(?:\w+ ){0,3}?(?:order|purchase|transaction|consignment|haul)\b(?: of mine| (?:with|including) the \w+| number)?(?: \S+)?",
    "street": r"\w+ \d+",
    "subject": r"[^\"]+",
    "priority": r"(?:low|medium|high)",
    "text": r'[^"]+',
}


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
    phrases = "|".join(sorted({_frame_pattern(frame, slot) for frame in frames}))
    return re.compile(rf"(?<!\w)(?:{phrases})(?!\w)")


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _frame_pattern(frame: str, slot: str) -> str:
    quoted = re.sub(r'"\{\w+\}"', '"{text}"', _plain(frame).rstrip(".?"))
    parts = re.split(r"\{(\w+)\}", quoted)
    made = [
        re.escape(part) if index % 2 == 0 else _slot_pattern(part, slot)
        for index, part in enumerate(parts)
    ]
    return "".join(made)


def _slot_pattern(name: str, slot: str) -> str:
    if slot and name != "text":
        return slot
    return _SLOTS.get(name, r"\S+")
