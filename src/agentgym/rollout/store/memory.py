"""Memory: keep recent rollouts in memory, in addition to SQLite."""

from collections import deque

from agentgym.errors import RolloutNotFoundError
from agentgym.rollout.store import tables
from agentgym.rollout.store.database import Database
from agentgym.rollout.store.live_rollout import LiveRollout

_RECENT = 64  # ended rollouts that stay for a while, for later requests


class Memory:
    """Keeps unfinished and recently ended rollouts in memory. Not thread-safe.

    A rollout is removed from memory only once all of its writes are in SQLite.

    Attributes:
        live: The rollouts in memory, by id.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.live: dict[str, LiveRollout] = {}
        self._recent: deque[str] = deque()
        self._deleted: dict[str, int] = {}  # by id: the deletion's submission number

    def find(self, rollout_id: str) -> LiveRollout | None:
        """Return a rollout from memory or SQLite; None if the id is unknown."""
        if live := self.live.get(rollout_id):
            return live
        if not self._database.has_committed(self._deleted.get(rollout_id, 0)):
            return None
        found = tables.find_rollout(self._database, rollout_id)
        return None if found is None else LiveRollout(*found)

    def get(self, rollout_id: str) -> LiveRollout:
        """Return a rollout; raise RolloutNotFoundError if the id is unknown."""
        live = self.find(rollout_id)
        if live is None:
            raise RolloutNotFoundError(rollout_id)
        return live

    def ended(self, rollout_id: str) -> None:
        """Register that a rollout ended; remove the oldest ended ones from memory."""
        self._recent.append(rollout_id)
        while len(self._recent) > _RECENT:
            oldest = self.live.get(self._recent[0])
            if oldest is not None and oldest.ended:  # its id may be in use again
                if not self._database.has_committed(oldest.number):
                    return
                del self.live[self._recent[0]]
            self._recent.popleft()

    def delete(self, rollout_id: str) -> LiveRollout | None:
        """Remove a rollout from memory and SQLite; return it if it was in memory."""
        is_known = self._database.has_committed
        waiting = {i: n for i, n in self._deleted.items() if not is_known(n)}
        number = self._database.submit(*tables.delete_rollout(rollout_id))
        self._deleted = waiting | {rollout_id: number}
        return self.live.pop(rollout_id, None)
