"""Trained agents with the answers of a script, to be given back to a framework."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentgym import models
from agentgym.core.agent import AgentSpec
from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.integrations.client_adapter import TrainedEndpoint
from agentgym.serving.in_process import PolicyTransport
from agentgym.train.trained_agent import MODEL_FOLDER, Provenance, TrainedAgent
from tests.ui import made_up

if TYPE_CHECKING:
    from agentgym.integrations.langchain.models import RoleChatOpenAI


def trained_in(
    path: Path, framework: str, agent: str | None = None, scenario: str = "coding"
) -> TrainedAgent:
    """Return an agent with the shipped weights, as training leaves one behind."""
    (path / MODEL_FOLDER).symlink_to(Path(models.__path__[0], "nano"))
    spec = AgentSpec(
        scenario=scenario,
        framework=framework,
        agent=agent,
        system_prompt="You code.",
        tools=[],
        max_turns=4,
        max_tokens=40,
        temperature=0.0,
    )
    provenance = Provenance(
        base_model="nano", config={}, steps=1, episodes=64, created="2026-11-21"
    )
    scores = made_up.metrics(0.5)
    return TrainedAgent(
        path=path, spec=spec, provenance=provenance, baseline=scores, metrics=scores
    )


def scripted(
    monkeypatch: pytest.MonkeyPatch, respond: Callable[[ChatRequest], Reply]
) -> list[ChatRequest]:
    """Let exported agents answer as a function says; return what they are asked."""
    asked: list[ChatRequest] = []

    def answer(request: ChatRequest) -> Reply:
        asked.append(request)
        return respond(request)

    monkeypatch.setattr(TrainedAgent, "load_policy", lambda _: ScriptedPolicy(answer))
    return asked


def endpoint(
    respond: Callable[[ChatRequest], Reply], temperature: float = 0.0
) -> TrainedEndpoint:
    """Return a model in this process that answers as a function says."""
    usual: dict[str, Any] = {"temperature": temperature, "max_tokens": 160}
    answers = PolicyTransport(ScriptedPolicy(respond), "coding", **usual)
    return TrainedEndpoint("coding", **usual, transport=answers)


def chat_model(respond: Callable[[ChatRequest], Reply]) -> "RoleChatOpenAI":
    """Return the chat model of a trained agent that answers as a function says."""
    from agentgym.integrations.langchain.models import RoleChatOpenAI

    return RoleChatOpenAI.at(endpoint(respond), None)


def list_then_say(request: ChatRequest) -> Reply:
    """List the files, then repeat what came of it."""
    said = str(request.messages[-1]["content"])
    if said.startswith("Observation:"):  # of smolagents
        return Reply(calls=[("final_answer", {"answer": said})])
    if request.messages[-1]["role"] == "tool":
        return Reply(said)
    return Reply(calls=[("list_files", {})])
