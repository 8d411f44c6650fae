"""The test pools occur nowhere in what the generator makes, even before its filter."""

import pytest

from agentgym.core.task import Split
from agentgym.packs.coding.scenario import CodingScenario
from recipes.nano.blind import BLIND, SHIPPED, Count, count
from recipes.nano.conversation import END, USER


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHIPPED)
def test_few_conversations_hold_nothing_of_the_test_pools(kind: str) -> None:
    found = count(kind, [0], size=150)
    assert (found.conversations, found.hits) == (150, 0)


@pytest.mark.sweep
@pytest.mark.parametrize("shard", range(5))
@pytest.mark.parametrize("kind", SHIPPED)
def test_four_thousand_conversations_hold_nothing_of_the_test_pools(
    kind: str, shard: int
) -> None:
    assert count(kind, [shard]) == Count(conversations=4_000)


@pytest.mark.parametrize("split", BLIND)
def test_a_test_task_is_found(split: Split) -> None:
    """The count can tell: requests hold phrases, projects names and faults."""
    found = Count()
    tasks = CodingScenario().tasks(split, 5, 190, levels=(1, 2, 3))
    for task in tasks:
        files = "\n".join(task.initial_state["files"].values())
        found.add(f"{USER}{task.instruction}{END}{files}{END}")
    assert found.conversations == found.names == found.phrases == 190
    assert found.references > 30
    assert found.manners > 30
    assert found.faults >= 30
