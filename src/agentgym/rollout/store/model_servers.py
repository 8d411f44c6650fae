"""ModelServers: the remote model servers that a trainer registered."""

import hashlib
import threading
from collections.abc import Sequence

from agentlightning.schemas import Model

from agentgym.rollout.store import tables
from agentgym.rollout.store.database import Database


class ModelServers:
    """Registered servers, by model name and endpoint. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._models: dict[str, dict[str, Model]] = {}
        for name, endpoint, version in database.read("SELECT * FROM models"):
            model = Model(model=name, endpoint=endpoint, version=version)
            self._models.setdefault(name, {})[endpoint] = model

    def upsert(self, models: Sequence[Model]) -> list[Model]:
        """Add servers, or replace those with the same model and endpoint."""
        with self._lock:
            for model in models:
                self._models.setdefault(model.model, {})[model.endpoint] = model
            self._database.submit(*(tables.upsert_model(model) for model in models))
        return list(models)

    def clear(self) -> None:
        """Remove all servers."""
        with self._lock:
            self._models.clear()
            self._database.submit(("DELETE FROM models", ()))

    def pick(self, model: str, rollout_id: str) -> Model | None:
        """Return the server of a rollout: always the same, for its prefix cache."""
        with self._lock:
            servers = self._models.get(model, {})
            if not servers:
                return None
            digest = hashlib.sha256(rollout_id.encode()).digest()
            place = int.from_bytes(digest[:8], "big") % len(servers)
            return servers[sorted(servers)[place]]
