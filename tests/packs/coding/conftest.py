"""A scenario on a sandbox that all tests share, and how to play it."""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Reward
from agentgym.evaluate.baselines import Call
from agentgym.evaluate.baselines import play as play_episode
from agentgym.packs.coding import functions
from agentgym.packs.coding.families import Broken, seed_fault
from agentgym.packs.coding.names import NAMES
from agentgym.packs.coding.references import PHRASES
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.packs.kit.tasks import Scene
from agentgym.sandbox import Sandbox, SandboxConfig, open_sandbox
from agentgym.scenarios.base import Environment

Calls = Sequence[tuple[str, dict[str, Any]]]
Play = Callable[[Task, Calls], Awaitable[Reward]]


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with open_sandbox(SandboxConfig(concurrency=2)) as opened:
        yield opened


@pytest.fixture
def scenario(sandbox: Sandbox) -> CodingScenario:
    return CodingScenario(sandbox)


@pytest.fixture
def play(scenario: CodingScenario) -> Play:
    """Make calls in a fresh environment of a task and score the episode."""

    async def run(task: Task, calls: Calls) -> Reward:
        return await play_in(scenario, scenario.create_environment(task), task, calls)

    return run


async def play_in(
    scenario: CodingScenario, environment: Environment, task: Task, calls: Calls
) -> Reward:
    made = [Call(name, arguments) for name, arguments in calls]
    _, reward = await play_episode(scenario, task, made, environment=environment)
    return reward


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
