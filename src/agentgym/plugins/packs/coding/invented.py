"""Invent names, so that a policy learns to copy names instead of recalling them.

Held-out tasks use words that never occur in training. A policy that knows only the
words of training may write one of them instead. So most training projects have names
made from pieces of training words or from random syllables. The policy then has to
learn to copy any sequence of letters.
"""

import builtins
import keyword
from functools import cache
from random import Random

from agentgym.core.task import Split
from agentgym.plugins.packs.coding.names import NAMES, Names

INVENTED = 0.75
"""Share of training projects with invented names."""

_PIECE = (2, 4)
_LONGEST = 8
"""Maximum letters of a name; with longer ones, projects do not fit into a prompt."""
_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kn l m n p ph pl pr qu r s sc sh sk "
    "sl sm sn sp st str sw t th tr tw v w wh wr y z"
)
_NUCLEI = "a e i o u ai au ea ee ie oa oo ou oi"
_CODAS = (
    "b ck ct d ff ft g l ld lk ll lm lt m mp n nd ng nk nt p pt r rb rd rk rl rm rn rp "
    "rt s sh sk sp ss st t th tt w x z"
)


def names_for(split: Split, rng: Random) -> Names:
    """Return words for a project of ``split``; in training, sometimes invented ones."""
    if split is Split.TRAIN and rng.random() < INVENTED:
        return invented(rng)
    return NAMES[split]


def invented(rng: Random) -> Names:
    """Return invented words, none of which is among the words of any split."""
    words: list[str] = []
    while len(words) < 30:
        word = _word(rng)
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


def _word(rng: Random) -> str:
    """Return a word made of two or three random syllables or training-word pieces."""
    piece = rng.choice((_splinter, _syllable))
    made = "".join(piece(rng) for _ in range(rng.choice((2, 2, 2, 3))))
    return made[:_LONGEST]


def _splinter(rng: Random) -> str:
    source = rng.choice(_sources())
    start = rng.randrange(len(source) - 1)
    return source[start : start + rng.randint(*_PIECE)]


def _syllable(rng: Random) -> str:
    parts = [_ONSETS, _NUCLEI, _CODAS] if rng.random() < 0.35 else [_ONSETS, _NUCLEI]
    return "".join(rng.choice(part.split()) for part in parts)


@cache
def _sources() -> tuple[str, ...]:
    names = NAMES[Split.TRAIN]
    return tuple(word for word in (*names.nouns, *names.packages) if len(word) > 3)


@cache
def _taken() -> frozenset[str]:
    known = {word for names in NAMES.values() for word in names.words()}
    return frozenset({*known, *dir(builtins), *keyword.kwlist, "test", "tests", "sys"})
