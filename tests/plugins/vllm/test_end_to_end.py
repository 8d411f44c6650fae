"""Whole runs: real agents, the real gateway, and a process that plays vLLM."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agentgym import Trainer
from agentgym.engines.base import TrainingBatch, UpdateMetrics
from agentgym.errors import ProviderError
from agentgym.plugins.vllm.engine import VllmEngine
from tests.plugins.vllm.conftest import ROOT, Played, config
from tests.processes import processes_of
from tests.variants import first_of

pytestmark = pytest.mark.timeout(300)

_RUN = """
import sys
from pathlib import Path
from agentgym.cli.main import main
from agentgym.plugins.vllm import settings
settings.visible_gpus = lambda: ["0"]
sys.exit(main(sys.argv[1:]))
"""


def tensors(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        found |= load_file(path)
    return found


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]


def by_turns(seen: list[dict[str, Any]]) -> bool:
    """Say whether vLLM was put to sleep and woken by turns, and ended asleep."""
    kinds = [line["call"] for line in seen if line["call"] in ("sleep", "wake_up")]
    return kinds == ["sleep", "wake_up"] * (len(kinds) // 2) + ["sleep"]


@pytest.mark.slow
def test_a_run_learns_goes_on_and_its_agent_is_as_any_other(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[TrainingBatch] = []
    update = VllmEngine.update

    def watched(self: VllmEngine, batch: TrainingBatch) -> UpdateMetrics:
        batches.append(batch)
        assert played.seen()[-1]["call"] == "sleep"  # the GPU is the learner's
        return update(self, batch)

    monkeypatch.setattr(VllmEngine, "update", watched)
    settings = config(tmp_path, name="run", learning_rate=1e-3)
    played.script(busy={"/v1/completions": 2})
    first = Trainer(settings.replaced(episodes=8)).train()
    one = tensors(first.artifacts.agent)
    result = Trainer(settings).train(resume=tmp_path / "run", episodes=24)
    assert (first.steps, result.steps) == (1, 3)

    # Rows reached the learner, which gives them the log-probabilities of sampling.
    assert len(batches) == 3
    assert all(batch.trained_tokens for batch in batches)
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert all(0 < line["logprob_gap"] < 1e-3 for line in lines)
    assert [line["trained_tokens"] for line in lines] == [
        batch.trained_tokens for batch in batches
    ]

    # Each version was answered with under its own name, and none while it slept.
    seen = played.seen()
    starts = [at for at, line in enumerate(seen) if line["call"] == "start"]
    assert by_turns(seen[: starts[1]])
    assert by_turns(seen[starts[1] :])
    loaded = [line["name"] for line in played.seen("load")]
    assert loaded == [f"agentgym-v{step}" for step in (0, 1, 1, 2, 3)]
    chats = played.seen("complete")
    assert {line["model"] for line in chats} == {f"agentgym-v{i}" for i in range(4)}
    assert not any(line["sleeps"] for line in chats)
    gone = [line["name"] for line in played.seen("unload")]
    assert gone == [f"agentgym-v{step}" for step in (0, 1, 2)]
    assert processes_of(played.mark) == []

    # What was learnt is an adapter that moved, and moved again.
    two = tensors(result.artifacts.agent)
    assert one.keys() == two.keys()
    assert all("lora" in name for name in two)
    assert any(not torch.equal(one[name], two[name]) for name in one)
    assert (result.artifacts.agent / "model" / "adapter_config.json").exists()
    assert "logprob_gap" in lines[-1]
    agent = result.to_langchain()
    answer = agent.invoke({"messages": [{"role": "user", "content": "List the files"}]})
    assert answer["messages"][-1].content is not None


@pytest.mark.slow
def test_a_server_that_dies_ends_the_run_and_it_can_be_resumed(
    played: Played, tmp_path: Path
) -> None:
    settings = config(tmp_path, name="run")
    Trainer(settings.replaced(episodes=8)).train()
    asked = len(played.seen("complete"))
    played.script(**{"die at": {"/v1/completions": asked // 2}})
    with pytest.raises(ProviderError, match=r"vLLM has ended.*out of memory") as died:
        Trainer(settings).train(resume=tmp_path / "run", episodes=24)
    assert "Lower gpus.memory_share" in str(died.value)
    assert str(tmp_path / "run" / "vllm.log") in str(died.value)
    assert processes_of(played.mark) == []
    played.script()
    result = Trainer(settings).train(  # as the error advised
        resume=tmp_path / "run",
        episodes=24,
        **{"gpus.memory_share": 0.3},
        vllm={"max_model_len": 900},
    )
    assert result.steps == 3
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 2, 3]
    starts = [(start["share"], start["length"]) for start in played.seen("start")]
    assert starts == [(0.5, 1024), (0.5, 1024), (0.3, 900)]


@pytest.mark.slow
def test_conversations_longer_than_the_context_end_as_such(
    played: Played, tmp_path: Path
) -> None:
    settings = config(tmp_path, name="run", episodes=8, vllm={"max_model_len": 560})
    result = Trainer(settings).train()
    assert result.ledger.dropped["no answer: context_length_exceeded"] > 0
    (line,) = metrics(tmp_path / "run")
    assert line["dropped"] == 0  # the episode was cut short, and has its reward


@pytest.mark.slow
@pytest.mark.parametrize("number", first_of([signal.SIGKILL, signal.SIGINT]))
def test_nothing_is_left_of_a_run_that_was_ended(
    played: Played, tmp_path: Path, number: signal.Signals
) -> None:
    played.script(children=True)
    settings = tmp_path / "run.yaml"
    made = config(tmp_path, name="run", episodes=800).model_dump(
        mode="json", exclude_defaults=True
    )
    settings.write_text(json.dumps(made))
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, "train", "--config", str(settings)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        assert len(processes_of(played.mark, patience_s=0)) >= 4
    finally:
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert processes_of(played.mark) == []
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "--resume" in told
