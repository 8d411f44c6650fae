"""Invented names: training alone has them, and they are nobody else's."""

import keyword
from random import Random

from agentgym.core.task import Split
from agentgym.packs.coding.names import NAMES, invented, names_for


def test_invented_names_are_names_that_no_pool_holds() -> None:
    known = {word for names in NAMES.values() for word in names.words()}
    for seed in range(300):
        words = invented(Random(seed)).words()
        assert not words & known
        assert all(word.isidentifier() for word in words)
        assert not any(keyword.iskeyword(word) for word in words)


def test_only_training_projects_have_invented_names() -> None:
    for split in Split:
        drawn = [names_for(split, Random(seed)) for seed in range(200)]
        own = sum(names == NAMES[split] for names in drawn)
        assert own == 200 if split is not Split.TRAIN else 25 < own < 75
