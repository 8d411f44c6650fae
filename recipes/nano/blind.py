"""Count how often the coding test pools occur in what the generator makes, unfiltered.

    python -m recipes.nano.blind --shards 5

The shipped weights are older than the pools of the test and out-of-vocabulary splits,
so the corpus's filter proves nothing about them. This counts conversations of the
generator, which draws on nothing of those pools, before any filter, from the same
seeds as the corpus: 5 shards are 20,000 conversations of each kind.
"""

import argparse
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from agentgym.core.task import Split
from agentgym.packs.coding.families import REFERENCES
from agentgym.packs.coding.functions import TEMPLATES
from agentgym.packs.coding.names import NAMES
from agentgym.packs.kit.phrases import GREETINGS, MANNERS
from recipes.nano.corpus import MAKERS
from recipes.nano.held_out import (
    Phrases,
    coding_frames,
    name_pattern,
    user_turns,
)

BLIND = (Split.TEST, Split.OUT_OF_VOCABULARY)
SHIPPED = ("coding", "customer_support", "general", "support")
"""The kinds of conversation that the shipped weights were made of."""
ANYTHING = r"\S+(?: \S+){0,9}?"
"""What may stand in a slot of a phrase: more than the coding scenario puts there."""


@dataclass
class Count:
    """Conversations, and how many of them hold something of the test pools.

    Attributes:
        conversations: How many were made.
        names: How many hold a name as a word, anywhere.
        phrases: How many hold a phrase as a whole in a user's turn.
        references: How many refer to a file or folder in the test pools' way.
        manners: How many have a user's turn in a polite form of the test pools alone.
        faults: How many show a function with a fault of the test pool.
    """

    conversations: int = 0
    names: int = 0
    phrases: int = 0
    references: int = 0
    manners: int = 0
    faults: int = 0

    def add(self, text: str) -> None:
        """Count one conversation."""
        turns = user_turns(text)
        self.conversations += 1
        self.names += bool(_names().search(text.lower()))
        self.phrases += any(map(_phrases().are_in, turns))
        self.references += any(map(_references().are_in, turns))
        self.manners += any(_manners().fullmatch(turn) for turn in turns)
        self.faults += any(pattern.search(text) for pattern in _faults())

    @property
    def hits(self) -> int:
        """How much was found, all kinds together."""
        return self.names + self.phrases + self.references + self.manners + self.faults


def count(kind: str, shards: Iterable[int], size: int = 4_000) -> Count:
    """Make and count the first ``size`` conversations of each of ``shards``."""
    found = Count()
    for shard in shards:
        for number in range(size):
            talk = MAKERS[kind](random.Random(f"{kind}/{shard}/{number}"))
            found.add(talk.text())
    return found


@cache
def _names() -> re.Pattern[str]:
    return name_pattern(
        word.lower() for split in BLIND for word in NAMES[split].words()
    )


@cache
def _phrases() -> Phrases:
    return Phrases(coding_frames(BLIND), ANYTHING)


@cache
def _references() -> Phrases:
    return Phrases(
        form
        for forms in REFERENCES.values()
        for split in BLIND
        for form in forms[split]
    )


@cache
def _manners() -> re.Pattern[str]:
    """Return what matches a turn in a manner or greeting that training lacks."""
    pools = (MANNERS, GREETINGS)
    forms = {form for pool in pools for split in BLIND for form in pool[split]}
    forms -= {form for pool in pools for form in pool[Split.TRAIN]}
    return re.compile(
        "|".join(
            ".*".join(re.escape(part) for part in form.lower().split("{request}"))
            for form in sorted(forms)
        )
    )


@cache
def _faults() -> tuple[re.Pattern[str], ...]:
    """Return what finds a function of a template with one of its test faults."""
    return tuple(
        re.compile(
            rf"def (?:{'|'.join(template.verbs)})_\w+"
            r"\((?P<a>\w+)(?:, (?P<b>\w+))?\):\n"
            r'(?:    """.*"""\n)?'
            rf"    {_body(fault.body)}(?=\n|$|<)"
        )
        for template in TEMPLATES
        for fault in template.faults
        if fault.split in BLIND
    )


def _body(body: str) -> str:
    filled = re.escape(body)
    for slot, pattern in (("a", "(?P=a)"), ("b", "(?P=b)"), ("K", r"[A-Z_]+")):
        filled = filled.replace(re.escape(f"{{{slot}}}"), pattern)
    return filled


def main() -> None:
    """Print the counts of each kind; fail if anything was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=5)
    options = parser.parse_args()
    counts = {kind: count(kind, range(options.shards)) for kind in SHIPPED}
    for kind, found in counts.items():
        print(f"{kind}: {found}")
    raise SystemExit(any(found.hits for found in counts.values()))


if __name__ == "__main__":
    main()
