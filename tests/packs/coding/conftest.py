"""A scenario on a sandbox that all tests share, and how to play it."""

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentgym.core.task import Split
from agentgym.packs.coding import functions
from agentgym.packs.coding.families import PHRASES, Broken, seed_fault
from agentgym.packs.coding.names import NAMES
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.packs.kit.tasks import Scene
from agentgym.sandbox import Sandbox


@pytest.fixture(scope="session")
def scenario() -> Iterator[CodingScenario]:
    with closing(CodingScenario()) as made:
        yield made


@pytest.fixture(scope="session")
def sandbox(scenario: CodingScenario) -> Sandbox:
    return scenario.sandbox


def every_fault(seed: int) -> Iterator[Broken]:
    """Yield one broken project for each fault of each split."""
    rng = random.Random(seed)
    for kind in ("operator", "condition", "value"):
        for split in (Split.TRAIN, Split.VALIDATION, Split.TEST):
            pairs = len(functions.with_fault(kind, split))
            seen = set()
            while len(seen) < pairs:
                scene = Scene(rng, split, NAMES[split], PHRASES["repair"])
                broken = seed_fault(scene, kind)
                body = (broken.function.template.key, broken.fault.body)
                if body not in seen:
                    seen.add(body)
                    yield broken
