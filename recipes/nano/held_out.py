"""What the corpus must not hold: the scenarios' held-out phrases and names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentgym.core.task import Split
from agentgym.scenarios.coding.families import FAMILIES
from agentgym.scenarios.coding.names import NAMES
from agentgym.scenarios.customer_support.names import NAMES as SUPPORT_NAMES
from agentgym.scenarios.customer_support.wording.phrases import INTENTS
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
    "dir": r"(?:(?:the |this |our )?(?:folder |directory )?(?:whole |entire )?\w+/?(?: folder| directory)?)",
    "name": r"\w+_\w+",
    "args": r"\S+(?: (?:and )?\S+)?",
    "test": r"test_\w+",
    "order": r"(?:\w+ ){0,3}?(?:order|purchase|transaction|consignment|haul)\b(?: of mine| (?:with|including) the \w+| number)?(?: \S+)?",
    "street": r"\w+ \d+",
    "subject": r"[^\"]+",
    "priority": r"(?:low|medium|high)",
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
        names = "|".join(map(re.escape, sorted(found)))
        phrases = "|".join(sorted({_frame_pattern(f) for f in held_frames()}))
        return cls(
            re.compile(rf"(?<![a-z])(?:{names})(?![a-z])"),
            re.compile(rf"(?<!\w)(?:{phrases})(?!\w)"),
        )

    def found_in(self, text: str) -> bool:
        """Return whether ``text`` holds anything that is held out."""
        return bool(self.names.search(text.lower())) or self.phrase_in(text)

    def phrase_in(self, text: str) -> bool:
        """Return whether a user's turn holds a held-out phrase."""
        turns = re.findall(r"<\|user\|>(.*?)<\|end\|>", text, re.DOTALL)
        return any(self.phrases.search(_plain(turn)) for turn in turns)


def held_frames() -> Iterator[str]:
    """Yield every held-out frame of the scenarios' grammars."""
    grammars = [*(family.phrases for family in FAMILIES), *INTENTS.values()]
    for phrases in grammars:
        for split in HELD:
            yield from phrases.frames(split)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _frame_pattern(frame: str) -> str:
    parts = re.split(r"\{(\w+)\}", _plain(frame).rstrip(".?"))
    made = [
        re.escape(part) if index % 2 == 0 else _SLOTS.get(part, r"\S+")
        for index, part in enumerate(parts)
    ]
    return "".join(made)
