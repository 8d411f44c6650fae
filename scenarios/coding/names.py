"""Words for the names in generated projects, one set of words per split.

No word is in two sets, or in the phrases of requests. So the names in held-out tasks
are new to the agent, which has to copy them.
"""

import builtins
import keyword
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from agentgym.core.task import Split
from agentgym.packs.kit.phrases import read_words

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


@dataclass(frozen=True)
class Names:
    """The words of one split, from which names in projects are made.

    Attributes:
        nouns: Topics of modules, functions, constants and scripts.
        parameters: Pairs of parameter names.
    """

    packages: tuple[str, ...]
    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    lists: tuple[str, ...]

    def words(self) -> frozenset[str]:
        """Return all words of this split."""
        pairs = (word for pair in self.parameters for word in pair)
        return frozenset(
            (*self.packages, *self.nouns, *self.adjectives, *self.lists, *pairs)
        )


def _read() -> dict[Split, Names]:
    found = read_words(Path(__file__).with_name("names.toml"))
    for words in found.values():
        words["parameters"] = tuple(tuple(p.split("/")) for p in words["parameters"])
    return {split: Names(**words) for split, words in found.items()}


NAMES = _read()


def names_for(split: Split, rng: Random) -> Names:
    """Return words for a project of ``split``; in training, sometimes invented ones."""
    # Held-out tasks use words that never occur in training: the policy has to learn to
    # copy any sequence of letters, instead of recalling the words of training.
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
