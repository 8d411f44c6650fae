"""Invented names: training alone has them, and they are nobody else's."""

import re
from random import Random

from agentgym.core.task import Split
from agentgym.scenarios.customer_support.invented import invented, names_for
from agentgym.scenarios.customer_support.names import NAMES


def test_invented_names_are_names_that_no_pool_holds() -> None:
    words = {word.lower() for names in NAMES.values() for word in names.words()}
    texts = {text for n in NAMES.values() for text in (*n.subjects, *n.numbers)}
    for seed in range(300):
        names = invented(Random(seed))
        made = [word.lower() for word in names.words()]
        assert not set(made) & words
        assert len(made) == 20
        assert all(re.fullmatch("[a-z]{3,8}", word) for word in made)
        assert not {*names.subjects, *names.numbers} & texts


def test_invented_numbers_can_be_told_apart_and_copied() -> None:
    for seed in range(300):
        rng = Random(seed)
        names = invented(rng)
        numbers = {names.number(rng) for _ in range(200)}
        assert len(numbers) > 50
        assert all(re.fullmatch(r"[A-Za-z0-9]+([-_][0-9]+){0,2}", n) for n in numbers)


def test_complaints_are_made_of_training_words() -> None:
    known = {w for text in NAMES[Split.TRAIN].subjects for w in text.split()}
    for seed in range(300):
        for subject in invented(Random(seed)).subjects:
            assert set(subject.split()) <= known


def test_only_training_shops_have_invented_names() -> None:
    for split in Split:
        drawn = [names_for(split, Random(seed)) for seed in range(200)]
        own = sum(names == NAMES[split] for names in drawn)
        assert own == 200 if split is not Split.TRAIN else 25 < own < 75
