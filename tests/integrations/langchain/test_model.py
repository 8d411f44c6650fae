"""An exported agent streams from sync code as from async code."""

import gc
import shutil
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from openai import OpenAIError

from agentgym import models
from agentgym.core.agent import AgentSpec
from agentgym.engines.local.policy import LocalPolicy
from agentgym.integrations.langchain.models import RoleChatOpenAI
from agentgym.serving.in_process import PolicyTransport
from agentgym.train.trained_agent import MODEL_FOLDER, Provenance, TrainedAgent
from tests.ui import made_up

PROMPT = "You are a coding agent."
TOLD: list[BaseMessage] = [
    HumanMessage("Run the tests."),
    AIMessage("", tool_calls=[{"name": "run_tests", "args": {}, "id": "call_1"}]),
    ToolMessage("5 passed", tool_call_id="call_1"),
]


@tool
def run_tests() -> str:
    """Run all tests."""
    return "5 passed"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> TrainedAgent:
    """Return an agent with the shipped weights, as training leaves one behind."""
    path = tmp_path_factory.mktemp("agent")
    shutil.copytree(Path(models.__path__[0], "nano"), path / MODEL_FOLDER)
    spec = AgentSpec(
        scenario="coding",
        framework="native",
        system_prompt=PROMPT,
        tools=[],
        max_turns=5,
        max_tokens=40,
        temperature=0.0,
    )
    provenance = Provenance(
        base_model="nano", config={}, steps=1, episodes=64, created="2026-11-21"
    )
    scores = made_up.metrics(0.5)
    TrainedAgent(
        path=path, spec=spec, provenance=provenance, baseline=scores, metrics=scores
    ).write_card()
    return TrainedAgent.load(path)


def transport_of(model: Any) -> PolicyTransport:
    found = model.http_client._transport
    assert isinstance(found, PolicyTransport)
    return found


@pytest.fixture(scope="module")
def model(agent: TrainedAgent) -> BaseChatModel:
    return agent.chat_model()


def _conversation() -> list[BaseMessage]:
    return [SystemMessage(PROMPT), *TOLD]


def test_a_sync_stream_adds_up_to_the_answer(model: BaseChatModel) -> None:
    whole = model.invoke(_conversation())
    chunks = list(model.stream(_conversation()))
    assert len([chunk for chunk in chunks if chunk.text]) > 1
    assert "".join(chunk.text for chunk in chunks) == whole.text != ""
    [usage] = filter(None, (chunk.usage_metadata for chunk in chunks))
    assert usage == whole.usage_metadata


def test_the_exported_graph_streams_its_messages(agent: TrainedAgent) -> None:
    graph = agent.to_langchain(tools=[run_tests])
    streamed = graph.stream({"messages": TOLD}, stream_mode="messages")
    pieces = [m.text for m, _ in streamed if isinstance(m, AIMessageChunk)]
    assert len([piece for piece in pieces if piece]) > 1
    answer = graph.invoke({"messages": TOLD})["messages"][-1]
    assert "".join(pieces) == answer.text


def test_a_sync_stream_that_is_left_leaves_no_thread(model: BaseChatModel) -> None:
    model.invoke(_conversation())
    before = set(threading.enumerate())
    chunks = iter(model.stream(_conversation()))
    assert len([next(chunks) for _ in range(3)][-1].text) > 0
    started = set(threading.enumerate()) - before
    assert started
    del chunks
    assert started.isdisjoint(threading.enumerate())


@pytest.mark.slow
@pytest.mark.parametrize("used_as", ["model", "copy", "graph"])
def test_the_weights_go_with_what_uses_them(agent: TrainedAgent, used_as: str) -> None:
    before = set(threading.enumerate())
    model = agent.chat_model()
    assert isinstance(model, RoleChatOpenAI)
    policy = transport_of(model)._policy
    assert isinstance(policy, LocalPolicy)
    weights = weakref.ref(policy._loaded.model)
    used: object = model
    if used_as == "copy":
        used = model.model_copy(update={"temperature": 1.0})
    elif used_as == "graph":
        used = create_agent(model, [run_tests], system_prompt=PROMPT)
    del model, policy
    gc.collect()
    if isinstance(used, RoleChatOpenAI):
        assert used.invoke(_conversation()).text
    assert weights() is not None

    del used
    deadline = time.monotonic() + 30
    while weights() is not None or not before.issuperset(threading.enumerate()):
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)


def test_a_closed_model_says_so(agent: TrainedAgent) -> None:
    model = agent.chat_model()
    transport_of(model).close()
    transport_of(model).close()
    with pytest.raises(OpenAIError, match="closed"):
        model.invoke(_conversation())
