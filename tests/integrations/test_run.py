"""The end of an episode: its record, and the environment that is closed."""

import sqlite3
from typing import Any

from agentgym import Environment, Task
from agentgym.core.trajectory import RolloutStatus
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import Ending, run_episode


class Shop(Environment):
    """Its state is in a database, which cannot be read once it is closed."""

    def __init__(self) -> None:
        self.sql = sqlite3.connect(":memory:")
        self.sql.execute("CREATE TABLE orders (item TEXT)")

    def end_state(self) -> dict[str, Any]:
        return {"orders": [row for (row,) in self.sql.execute("SELECT * FROM orders")]}

    def close(self) -> None:
        self.sql.close()


async def test_a_crashed_agents_record_has_the_state_before_it_was_closed() -> None:
    shop = Shop()

    async def crash(episode: Episode) -> str:
        shop.sql.execute("INSERT INTO orders VALUES ('tea')")
        raise RuntimeError("the agent broke")

    task = Task(id="t", split="train", seed=0, family="f", level=1, instruction="go")
    ended = await run_episode(
        Episode(task, rollout_id="r", attempt="0"),
        crash,
        create_environment=lambda _: shop,
        ending=Ending(),
    )

    assert ended.status is RolloutStatus.DROPPED
    assert "the agent broke" in str(ended.reason)
    assert ended.end_state == {"orders": ["tea"]}
