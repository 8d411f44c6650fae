"""Invented names for training projects.

See :mod:`agentgym.scenarios.wording.inventing` for why.
"""

import builtins
import keyword
from functools import cache
from random import Random

from agentgym.core.task import Split
from agentgym.scenarios.coding.names import NAMES, Names
from agentgym.scenarios.wording.inventing import invented_word

INVENTED = 0.75
"""Share of the training projects whose names are invented."""


def names_for(split: Split, rng: Random) -> Names:
    """Return what a project of ``split`` is named with.

    The pool of the split; in training, for a share of the projects, an invented one.
    """
    if split is Split.TRAIN and rng.random() < INVENTED:
        return invented(rng)
    return NAMES[split]


def invented(rng: Random) -> Names:
    """Return names that no split's pool holds."""
    words: list[str] = []
    while len(words) < 30:
        word = invented_word(rng, _sources())
        known = {word, word + "s"} & _taken()
        if not known and not any(word in other or other in word for other in words):
            words.append(word)
    return Names(
        packages=tuple(words[:2]),
        nouns=tuple(words[2:14]),
        adjectives=tuple(words[14:18]),
        parameters=tuple(zip(words[18:23], words[23:28], strict=True)),
        lists=tuple(word + "s" for word in words[28:]),
    )


@cache
def _sources() -> tuple[str, ...]:
    names = NAMES[Split.TRAIN]
    return tuple(word for word in (*names.nouns, *names.packages) if len(word) > 3)


@cache
def _taken() -> frozenset[str]:
    known = {word for names in NAMES.values() for word in names.words()}
    return frozenset({*known, *dir(builtins), *keyword.kwlist, "test", "tests", "sys"})
