"""ModelRegistry: store the model servers that a trainer registered."""

from collections.abc import Iterable

from agentgym.rollout.store.database import Database
from agentgym.rollout.store.rollout import ModelServer


class ModelRegistry:
    """Keeps registered model servers in memory and in SQLite. Not thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        known = database.read("SELECT server FROM models")
        models = [ModelServer.model_validate_json(text) for (text,) in known]
        self._models = {(model.model, model.endpoint): model for model in models}

    def named(self, name: str) -> list[ModelServer]:
        """Return the servers of a model."""
        return [model for model in self._models.values() if model.model == name]

    def add(self, models: Iterable[ModelServer]) -> None:
        """Add servers, or replace those with the same model and endpoint."""
        for model in models:
            self._models[model.model, model.endpoint] = model
            row = (model.model, model.endpoint, model.model_dump_json())
            self._database.submit(
                ("INSERT OR REPLACE INTO models VALUES (?, ?, ?)", row)
            )

    def clear(self) -> None:
        """Remove all registered servers."""
        self._models.clear()
        self._database.submit(("DELETE FROM models", ()))
