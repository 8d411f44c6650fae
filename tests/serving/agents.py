"""Trained agents with weights that answer: the shipped ones, or a tiny adapter."""

import shutil
from pathlib import Path

from agentgym import TrainedAgent
from agentgym.models.nano import nano_path
from tests.train.agents import make_agent

_KINDS = (".jinja", ".json", ".safetensors")


def shipped_agent(folder: Path) -> TrainedAgent:
    """Make an agent with the shipped policy's weights."""
    return _agent(folder, nano_path(), base_model="nano")


def adapted_agent(folder: Path, adapter: Path, base: str) -> TrainedAgent:
    """Make an agent whose weights are an adapter."""
    return _agent(folder, adapter, base_model=base)


def _agent(folder: Path, model: Path, *, base_model: str) -> TrainedAgent:
    agent = make_agent(folder, 0.3, 0.9, base_model=base_model)
    shutil.rmtree(agent.model_path)
    agent.model_path.mkdir()
    for path in model.iterdir():
        if path.suffix in _KINDS:
            shutil.copy(path, agent.model_path)
    agent.write_card()
    return agent
