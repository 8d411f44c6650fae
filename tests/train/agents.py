"""Agents made up for tests: a card, and weights that are a few bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym.core.agent import AgentSpec
from agentgym.train.trained_agent import MODEL_FOLDER, Provenance, TrainedAgent
from tests.ui import made_up


def make_agent(
    folder: Path,
    before: float,
    after: float,
    /,
    *,
    tasks: int = 120,
    scenario: str = "coding",
    tools: Sequence[str] = ("lint",),
    agent: str | None = None,
    **provenance: Any,
) -> TrainedAgent:
    """Make an agent that training brought from ``before`` to ``after``."""
    given = {"base_model": "nano", "config": {}, "steps": 31, "episodes": 3968}
    given["config"] = {"scenario": scenario}
    made = TrainedAgent(
        path=folder,
        spec=AgentSpec(
            scenario=scenario,
            framework="langchain" if agent else "native",
            agent=agent,
            system_prompt="You repair code.",
            tools=[{"type": "function", "function": {"name": t}} for t in tools],
            max_turns=10,
            max_tokens=160,
            temperature=0.5,
        ),
        provenance=Provenance(
            **{**given, "created": "2026-11-20T10:11:12+00:00", **provenance}
        ),
        baseline=made_up.metrics(before, tasks=tasks),
        metrics=made_up.metrics(after, tasks=tasks),
    )
    (folder / MODEL_FOLDER).mkdir(parents=True)
    (folder / MODEL_FOLDER / "config.json").write_text("{}")
    (folder / MODEL_FOLDER / "model.safetensors").write_bytes(b"weights")
    made.write_card()
    return made


def saved_agent(
    folder: Path, name: str, before: float, after: float, **more: Any
) -> TrainedAgent:
    """Make an agent in ``folder``, save it, and return its new version."""
    return TrainedAgent.load(make_agent(folder, before, after, **more).save(name))
