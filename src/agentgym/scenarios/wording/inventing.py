"""Invented words, so that training teaches to copy a name, not to know it.

Held-out tasks are named with words that training never shows. A policy that has met
only the words of the training pool may write one of those instead; most training tasks
are therefore named with pieces of such words or with random syllables: what is copied
right must be any row of letters, not only those of the training words.
"""

from collections.abc import Sequence
from random import Random

_PIECE = (2, 4)
_LONGEST = 8
"""Letters of a word; with longer ones tasks outgrow what fits into a prompt."""
_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kn l m n p ph pl pr qu r s sc sh sk "
    "sl sm sn sp st str sw t th tr tw v w wh wr y z"
)
_NUCLEI = "a e i o u ai au ea ee ie oa oo ou oi"
_CODAS = (
    "b ck ct d ff ft g l ld lk ll lm lt m mp n nd ng nk nt p pt r rb rd rk rl rm rn rp "
    "rt s sh sk sp ss st t th tt w x z"
)


def invented_word(rng: Random, sources: Sequence[str]) -> str:
    """Return two or three pieces of ``sources``, or as many syllables, in a row."""
    splinters = rng.choice((True, False))
    made = "".join(
        _splinter(rng, sources) if splinters else _syllable(rng)
        for _ in range(rng.choice((2, 2, 2, 3)))
    )
    return made[:_LONGEST]


def _splinter(rng: Random, sources: Sequence[str]) -> str:
    source = rng.choice(sources)
    start = rng.randrange(len(source) - 1)
    return source[start : start + rng.randint(*_PIECE)]


def _syllable(rng: Random) -> str:
    parts = [_ONSETS, _NUCLEI, _CODAS] if rng.random() < 0.35 else [_ONSETS, _NUCLEI]
    return "".join(rng.choice(part.split()) for part in parts)
