"""Invented names, complaints and numbers for training shops.

See :mod:`agentgym.scenarios.wording.inventing` for why.
"""

from collections.abc import Callable
from functools import cache
from random import Random

from agentgym.core.task import Split
from agentgym.scenarios.customer_support.names import NAMES, Names
from agentgym.scenarios.wording.inventing import invented_word

INVENTED = 0.75
"""Share of the training shops whose names are invented."""


def names_for(split: Split, rng: Random) -> Names:
    """Return what a shop of ``split`` is named with.

    The pool of the split; in training, for a share of the shops, an invented one.
    """
    if split is Split.TRAIN and rng.random() < INVENTED:
        return invented(rng)
    return NAMES[split]


def invented(rng: Random) -> Names:
    """Return names, complaints and styles of numbers that no split's pool holds."""
    words: list[str] = []
    while len(words) < 20:
        word = invented_word(rng, _sources())
        if len(word) > 2 and word not in _taken() and word not in words:
            words.append(word)
    titles = [word.capitalize() for word in words]
    return Names(
        first=tuple(titles[:2]),
        last=tuple(titles[2:4]),
        domains=tuple(words[4:6]),
        products=tuple(words[6:14]),
        cities=tuple(titles[14:17]),
        streets=tuple(titles[17:]),
        subjects=_unlike(rng, _subject, 2),
        numbers=_unlike(rng, _style, 1),
    )


def _unlike(rng: Random, make: Callable[[Random], str], count: int) -> tuple[str, ...]:
    """Return so many texts, none of which is in a pool."""
    made: list[str] = []
    while len(made) < count:
        text = make(rng)
        if text not in _taken() and text not in made:
            made.append(text)
    return tuple(made)


def _subject(rng: Random) -> str:
    """Return words of the training complaints in any order: to copy, not to read."""
    known = sorted({w for text in NAMES[Split.TRAIN].subjects for w in text.split()})
    return " ".join(rng.choice(known) for _ in range(rng.randint(3, 7)))


def _style(rng: Random) -> str:
    """Return a style of order numbers: digits in one or two parts, maybe letters."""
    letters = rng.choice(("", "", "A", "AA", "AAA", invented_word(rng, _sources())[:3]))
    digits = [rng.randint(3, 6)] if rng.random() < 0.6 else [rng.randint(2, 4)] * 2
    parts = ["9" * count for count in digits]
    sign = rng.choice("-_")
    if rng.random() < 0.5:
        return letters + sign.join(parts)
    return sign.join([letters, *parts] if letters else parts)


@cache
def _sources() -> tuple[str, ...]:
    names = NAMES[Split.TRAIN]
    found = {word.lower() for word in names.words()}
    return tuple(sorted(word for word in found if len(word) > 3))


@cache
def _taken() -> frozenset[str]:
    pools = NAMES.values()
    words = {word.lower() for names in pools for word in names.words()}
    texts = {text for names in pools for text in (*names.subjects, *names.numbers)}
    return frozenset(words | texts)
