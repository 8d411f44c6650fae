"""Trainings whose rollouts are single calls, by a scripted policy."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.core.ledger import OF_SOLUTION
from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from agentgym.errors import UsageError
from agentgym.evaluate import events
from agentgym.train import loop, warm_start
from agentgym.train.result import TrainingResult
from tests.observers import Seen
from tests.scripted_engine import ScriptedEngine
from tests.train.test_warm_start import lamps

Answer = Callable[[ChatRequest], Reply]
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))


def train(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    watching: Seen | None = None,
    **settings: Any,
) -> tuple[ScriptedEngine, TrainingResult]:
    engine = ScriptedEngine(answer)
    monkeypatch.setattr(loop, "create_engine", lambda config: engine)
    given: dict[str, Any] = {
        "scenario": str(lamps(folder)),
        "framework": "native",
        "rollouts": "calls",
        "episodes": 32,
        "group_size": 4,
        "tasks_per_step": 4,
        "eval_every": 5,
        "eval_tasks": 4,
        "test_tasks": 6,
        "eval_samples": 1,
        "tracker": "none",
        "name": "run",
        "output": folder / "runs",
        "early_stop": False,
        "task_choice": "uniform",
        "yes": True,
    }
    config = TrainingConfig.create(**{**given, **settings})
    return engine, Trainer(config, progress=watching or Seen()).train()


def half_right(request: ChatRequest) -> Reply:
    """Turn on the lamp that is due in two of four attempts, another in the others."""
    words = str(request.messages[1]["content"]).strip(".").split()
    done = sum(message["role"] == "tool" for message in request.messages)
    attempt = int(request.session.split("/")[0].rpartition("-")[2])
    if attempt % 2 and done == 2:
        return Reply("Both are on.")
    lamp = words[2 + 2 * done] if attempt % 2 else "another"
    return Reply(calls=[("turn_on", {"lamp": lamp})])


def credit_of(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "runs" / "run" / "credit.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_one_call_a_rollout_is_sampled_and_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, result = train(tmp_path, monkeypatch, half_right)

    assert result.episodes == 32
    sequences = [s for batch in engine.batches for s in batch.sequences]
    assert len(sequences) == 32, "each rollout has one trained call"
    assert all(len(sequence.calls) == 1 for sequence in sequences)
    ups = [s for s in sequences if s.trained[0].advantage > 0]
    assert 0 < len(ups) < len(sequences)
    for sequence in ups:
        start = sequence.trained[0].position
        prompt, answer = (
            bytes(sequence.ids[:start]).decode(),
            bytes(sequence.ids[start:]).decode(),
        )
        assert "another" not in answer
        assert prompt.count('"role": "tool"') <= 2
    places = Counter(
        bytes(s.ids[: s.trained[0].position]).decode().count('"role": "tool"')
        for s in sequences
    )
    assert set(places) == {0, 1, 2}, "every place of the solution, its end included"


def test_right_calls_lead_back_to_whole_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def right(request: ChatRequest) -> Reply:
        """Err in one of the first step's 16 attempts."""
        if request.session.startswith("s00001-t000-00"):
            return Reply(calls=[("turn_on", {"lamp": "another"})])
        words = str(request.messages[1]["content"]).strip(".").split()
        done = sum(message["role"] == "tool" for message in request.messages)
        if done == 2 or not request.tools:
            return Reply("Both are on.")
        return Reply(calls=[("turn_on", {"lamp": words[2 + 2 * done]})])

    watching = Seen()
    train(tmp_path, monkeypatch, right, watching, rollouts="calls")

    said = [m.text for m in watching.of(events.Message) if "whole episodes" in m.text]
    assert len(said) == 1, "once, after the first step"
    first, later = credit_of(tmp_path)[:16], credit_of(tmp_path)[16:]
    masked = {c["reason"] for r in first for c in r["calls"]}
    assert OF_SOLUTION in masked
    assert not any(c["reason"] == OF_SOLUTION for r in later for c in r["calls"])


def test_a_warm_start_ends_where_sampled_calls_get_no_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "TASKS", 100)
    monkeypatch.setattr(warm_start, "TASKS_PER_UPDATE", 4)
    watching = Seen()

    _, result = train(tmp_path, monkeypatch, half_right, watching, warm_start=True)

    assert result.imitated is not None
    assert result.imitated.updates == 4, "looked at after two updates, and two more"
    rollouts = tmp_path / "runs" / "run" / "rollouts.db"
    assert b"kept-002" not in rollouts.read_bytes(), "looks are no part of the record"


def test_calls_are_timed_where_a_run_has_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Seen()

    _, result = train(tmp_path, monkeypatch, half_right, watching, time="1h")

    sized = [m.text for m in watching.of(events.Message) if "A rollout takes" in m.text]
    assert sized
    assert result.steps
    assert b"timing-calls" not in (tmp_path / "runs/run/rollouts.db").read_bytes()


def test_calls_that_cannot_be_sampled_are_refused_before_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="rollouts = calls: train_roles"):
        train(tmp_path, monkeypatch, half_right, train_roles="agent")
    assert not (tmp_path / "runs").exists()


def test_the_shipped_policy_is_trained_by_whole_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result = train(tmp_path, monkeypatch, half_right, rollouts="auto")

    assert OF_SOLUTION not in result.ledger.masked
