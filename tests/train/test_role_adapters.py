"""An adapter for each role, from training to the graph and the server.

The training is a real one, of a tiny model with random weights: what is shown is that
every part knows which role is asking.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.engines.local.policy import LocalPolicy
from agentgym.errors import UnsupportedError, UsageError
from agentgym.serving.server import AgentServer
from agentgym.train import warm_start
from agentgym.train.trained_agent import TrainedAgent
from agentgym.train.trainer import Trainer
from tests.engines.conftest import make_model, make_tokenizer
from tests.integrations.test_teams import GRAPH, train

ROLES = ("planner", "worker")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 4096
    tokenizer.save_pretrained(tmp_path / "model")
    made = make_model(len(tokenizer), max_position_embeddings=4096)
    made.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def ask(server: AgentServer, model: str) -> tuple[str | None, list[float]]:
    """Return an answer with its log-probabilities."""
    client = OpenAI(base_url=server.url, api_key="any", max_retries=0)
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Add 1 and 2."}],
        max_tokens=8,
        logprobs=True,
        seed=1,
        temperature=0,
    )
    [choice] = answer.choices
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    return choice.message.content, [each.logprob for each in choice.logprobs.content]


def invoke(graph: Any) -> None:
    asyncio.run(graph.ainvoke({"messages": [("user", "Add 1 and 2.")]}))


@pytest.mark.slow
@pytest.mark.timeout(600)  # a busy machine takes minutes
def test_the_graph_and_the_server_answer_with_the_adapter_of_each_role(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "TASKS", 2)
    monkeypatch.setattr(warm_start, "LEAST_UPDATES", 20)
    adapted: dict[str, Any] = {"model": str(model), "gpu": "none", "lora_rank": 4}
    adapted |= {"role_adapters": True, "train_roles": ROLES, "warm_start": True}
    result = train(tmp_path, GRAPH, **{**adapted, "max_tokens": 96})
    assert {"planner", "worker"} <= set(result.ledger.roles)

    trained = TrainedAgent.load("run@1")
    assert trained.roles == ROLES
    folders = json.loads((trained.model_path / "roles.json").read_text())
    assert folders == {"planner": "r1_planner", "worker": "r2_worker"}
    assert {name.partition("/")[0] for name in trained.checksums} > set(
        folders.values()
    )

    asked: list[ChatRequest] = []
    chat = LocalPolicy.chat

    async def noted(self: LocalPolicy, request: ChatRequest) -> ChatResult:
        asked.append(request)
        return await chat(self, request)

    monkeypatch.setattr(LocalPolicy, "chat", noted)
    invoke(trained.to_langchain())
    assert [request.agent for request in asked][-2:] == ["worker", "critic"]

    with AgentServer.of(trained, "team@1") as server:
        listed = OpenAI(base_url=server.url, api_key="any").models.list()
        assert {"team", "team/planner", "team/worker"} <= {each.id for each in listed}
        below, worker = ask(server, "team"), ask(server, "team@1/worker")
        planner = ask(server, "team/planner")
        graph = trained.to_langchain(base_url=server.url)
        asked.clear()
        invoke(graph)
    assert worker[1] != pytest.approx(below[1], abs=1e-3), "it has learned nothing"
    assert planner[1] != pytest.approx(worker[1], abs=1e-3)
    assert [request.agent for request in asked][-2:] == ["worker", ""]

    with pytest.raises(
        UnsupportedError, match="an adapter for each of planner, worker"
    ):
        trained.to_autogen()
    with pytest.raises(UsageError, match="give --format hf"):
        trained.export(tmp_path / "merged")
    card = trained.export(tmp_path / "hf", "hf") / "README.md"
    assert "calculator/worker=FOLDER/r2_worker" in card.read_text()
    again = TrainingConfig.create(model=str(trained.model_path), scenario="coding")
    with pytest.raises(UsageError, match="give --model their base model"):
        Trainer(again).plan()
