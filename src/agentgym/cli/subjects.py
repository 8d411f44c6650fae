"""Subjects of a comparison: saved evaluations, trained agents, and models."""

from dataclasses import dataclass
from pathlib import Path

from agentgym.errors import NotFoundError
from agentgym.evaluate.result import Evaluation
from agentgym.models.reference import is_remote
from agentgym.train.trained_agent import TrainedAgent


@dataclass(frozen=True)
class Subject:
    """Who is to be compared; one of the three last is set.

    Attributes:
        name: As the user wrote it.
        evaluation: Already measured.
        agent: A trained agent.
        model: An untrained model: ``nano``, a folder, an id, or one of a provider.
    """

    name: str
    evaluation: Evaluation | None = None
    agent: TrainedAgent | None = None
    model: str | None = None


def find_subject(name: str) -> Subject:
    """Say what ``name`` means: a saved evaluation, an agent, or else a model.

    Raises:
        UsageError: A file that is no evaluation.
    """
    if is_remote(name) or name == "nano":
        return Subject(name, model=name)
    path = Path(name)
    if path.is_file() or path.suffix == ".json":
        return Subject(name, evaluation=Evaluation.load(path))
    try:
        return Subject(name, agent=TrainedAgent.load(name))
    except NotFoundError:
        if path.is_dir() or "/" in name:
            return Subject(name, model=name)
        raise
