"""Names of people, places and products for generated shops, one set per split.

No name is in two sets. So the names in held-out tasks are new to the agent, which has
to copy them.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from agentgym.packs.kit.phrases import read_words

_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


@dataclass(frozen=True)
class SupportNames:
    """The names of one split.

    Attributes:
        domains: Domains of email addresses, without endings such as ``.com``.
        subjects: Subjects of complaints.
        numbers: Formats of order numbers. In a format, ``9`` stands for a digit, ``A``
            for a capital letter, and other characters for themselves.
    """

    first: tuple[str, ...]
    last: tuple[str, ...]
    domains: tuple[str, ...]
    products: tuple[str, ...]
    cities: tuple[str, ...]
    streets: tuple[str, ...]
    subjects: tuple[str, ...]
    numbers: tuple[str, ...]

    def words(self) -> frozenset[str]:
        """Return the words of all lists, except ``subjects`` and ``numbers``."""
        people = (*self.first, *self.last, *self.domains)
        return frozenset((*people, *self.products, *self.cities, *self.streets))

    def number(self, rng: Random) -> str:
        """Return a random order number in one of this split's formats."""
        made = ""
        for sign in rng.choice(self.numbers):
            if sign == "9":
                made += rng.choice("123456789" if not made else "0123456789")
            else:
                made += rng.choice(_LETTERS) if sign == "A" else sign
        return made


NAMES = {
    split: SupportNames(**words)
    for split, words in read_words(Path(__file__).with_name("names.toml")).items()
}
