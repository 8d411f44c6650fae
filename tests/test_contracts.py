"""The eight contracts of docs/architecture.md, on real runs of the shipped policy.

Those about single parts have further tests beside the part: the ledger, components,
the store, the sandbox.
"""

import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from agentgym import TrainedAgent, Trainer, TrainingConfig
from agentgym.core.ledger import Ledger
from agentgym.engines.local.engine import LocalEngine
from agentgym.errors import SandboxUnavailableError, UsageError
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder

_SMALL = {
    "framework": "native",
    "episodes": 64,
    "group_size": 4,
    "tasks_per_step": 4,
    "test_tasks": 3,
    "eval_samples": 2,
    "eval_every": 2,
    "eval_tasks": 4,
    "early_stop": False,
    "tracker": "none",
}
_STEPS = 4

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """One small run that several contracts look into."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_HOME", str(folder / "home"))
        config = TrainingConfig.create(**_SMALL, output=folder, name="run")
        return Trainer(config).train("coding")


def train(
    folder: Path, *options: str, settings: dict[str, object] | None = None
) -> subprocess.Popen[bytes]:
    """Start ``agentgym train`` with the small settings in a process of its own."""
    config = folder / "config.yaml"
    config.write_text(json.dumps({**_SMALL, **(settings or {})}))
    command = [sys.executable, "-m", "agentgym", "train", *options]
    if "--resume" not in options:
        command += ["coding", "--config", str(config), "--output", str(folder)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "AGENTGYM_HOME": str(folder / "home")},
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors.decode()


def steps_of(run: RunFolder) -> list[int]:
    return [line["step"] for line in run.metrics()]


def weights_of(run: Path) -> dict[str, bytes]:
    tensors = load_file(run / "agent" / "model" / "model.safetensors")
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


def requests_of(run: Path) -> int:
    """Return how often training rollouts asked the model, answered or not."""
    with sqlite3.connect(run / "rollouts.db") as database:
        [(asked,)] = database.execute(
            "SELECT count(*) FROM events JOIN rollouts USING (rollout_id) "
            "WHERE event_type = 'model_request' AND is_train"
        )
    return int(asked)


@pytest.mark.slow
def test_contract_1_every_model_call_is_in_one_bucket(trained: TrainingResult) -> None:
    assert trained.ledger.adds_up
    assert trained.ledger.calls == requests_of(trained.artifacts.run)
    assert trained.ledger.trained > 0
    assert all([*trained.ledger.masked, *trained.ledger.dropped])


@pytest.mark.slow
def test_contract_1_calls_that_the_model_refused_are_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd(), prepend=os.pathsep)
    config = TrainingConfig.create(
        **{**_SMALL, "framework": "langchain", "episodes": 16},
        agent="tests.rollout.misbehaving:long_winded_agent",
        output=tmp_path,
        name="run",
    )
    result = Trainer(config).train("coding")
    refused = result.ledger.dropped["no answer: context_length_exceeded"]
    assert refused >= 16
    assert result.ledger.adds_up
    assert result.ledger.calls == requests_of(result.artifacts.run)


@pytest.mark.slow
def test_contract_2_no_reward_is_invented(trained: TrainingResult) -> None:
    with sqlite3.connect(trained.artifacts.run / "rollouts.db") as database:
        [(unscored,)] = database.execute(
            "SELECT count(*) FROM rollouts WHERE state = 'succeeded' AND NOT EXISTS "
            "(SELECT 1 FROM events WHERE events.rollout_id = rollouts.rollout_id "
            "AND event_type = 'reward')"
        )
        [(invented,)] = database.execute(
            "SELECT count(*) FROM rollouts WHERE state = 'failed' AND EXISTS "
            "(SELECT 1 FROM events WHERE events.rollout_id = rollouts.rollout_id "
            "AND event_type = 'reward')"
        )
    assert (unscored, invented) == (0, 0)


@pytest.mark.slow
def test_contract_3_trained_ids_are_the_sampled_ones(trained: TrainingResult) -> None:
    """Every later prompt of an episode continues the exact ids sampled before it."""
    from agentgym.rollout.store.store import Store

    continued = 0
    with Store(trained.artifacts.run / "rollouts.db") as store:
        for index in range(_SMALL["tasks_per_step"]):  # type: ignore[call-overload]
            calls = store.model_calls(f"s00001-t{index:03d}-00")
            for before, after in itertools.pairwise(calls):
                known = before.prompt_ids + before.response_ids
                assert after.prompt_ids[: len(known)] == known
                continued += 1
            assert all(len(c.logprobs) == len(c.response_ids) for c in calls)
    assert continued > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_contract_4_and_5_kills_lose_and_repeat_no_step_and_change_no_bit(
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    settings: dict[str, object] = {"deterministic": True, "name": "run"}
    settings |= {"tasks_per_step": 2, "episodes": 8 * _STEPS}  # such runs are slow
    finish(train(whole, settings=settings))
    run = RunFolder(killed / "run")
    process = train(killed, settings=settings)
    rng = random.Random(0)
    for _ in range(4):
        kill_in_a_while(process, run, rng.uniform(0.2, 4.0))
        if process.returncode == 0:
            break
        before = steps_of(run)
        assert before in _prefixes(_STEPS)
        process = train(killed, "--resume", str(run.path))
    finish(process)
    assert steps_of(run) == list(range(1, _STEPS + 1))
    state = run.load_state()
    assert state is not None
    assert state[0].episodes == settings["episodes"]
    assert Ledger.model_validate(state[0].ledger).adds_up
    assert weights_of(killed / "run") == weights_of(whole / "run")


def kill_in_a_while(
    process: subprocess.Popen[bytes], run: RunFolder, seconds: float
) -> None:
    """Kill a run ``seconds`` after its first sign of life, with ``kill -9``."""
    while process.poll() is None and not run.checkpoints():
        time.sleep(0.05)
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def _prefixes(steps: int) -> Sequence[list[int]]:
    return [list(range(1, last + 1)) for last in range(steps + 1)]


@pytest.mark.slow
def test_interrupting_saves_and_says_how_to_resume(tmp_path: Path) -> None:
    process = train(tmp_path, settings={"name": "run", "episodes": 6400})
    run = RunFolder(tmp_path / "run")
    while len(run.checkpoints()) < 2 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"--resume {run.path}" in " ".join(errors.decode().split())
    assert "Traceback" not in errors.decode()
    assert run.record()["status"] == "interrupted"


@pytest.mark.parametrize(
    "settings",
    [
        {"engine": "verl"},
        {"gpu": "runpod", "engine": "verl"},
        {"model": "nano", "lora_rank": 8, "deterministic": True, "gpu": "lambda"},
    ],
)
def test_contract_6_unsupported_settings_are_refused_before_a_model_loads(
    settings: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import agentgym.engines.local.engine as engine

    def load(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(engine, "load_model", load)
    config = TrainingConfig.create(**{**_SMALL, **settings}, output=tmp_path)
    with pytest.raises(UsageError):
        Trainer(config).train("coding")
    assert not any(tmp_path.glob("*/run.json"))


def test_contract_8_code_runs_in_the_sandbox_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract 7 is in tests/rollout/test_runner.py, with agents that misbehave."""
    monkeypatch.setattr(
        "agentgym.sandbox.ladder.probe", lambda rung: "made to fail by a test"
    )
    config = TrainingConfig.create(**_SMALL, output=tmp_path)
    with pytest.raises(SandboxUnavailableError, match="unsafe-local-exec"):
        Trainer(config).train("coding")
    assert not any(tmp_path.glob("*/run.json"))


@pytest.mark.slow
def test_a_trained_agent_is_measured_as_it_was_exported(
    trained: TrainingResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No adapter is put on a policy that was trained without one."""
    adapters = []

    def create(config: TrainingConfig) -> LocalEngine:
        engine = LocalEngine.create(config)
        names = [name for name, _ in engine._loaded.model.named_parameters()]
        adapters.extend(name for name in names if "lora" in name)
        return engine

    monkeypatch.setattr("agentgym.evaluate.evaluation.create_engine", create)
    found = Trainer().evaluate(
        "coding", agent=str(trained.artifacts.agent), tasks=1, samples=1
    )
    assert found.metrics.tasks == 1
    assert adapters == []


@pytest.mark.slow
def test_the_trained_agent_loads_into_langchain_and_calls_a_tool(
    trained: TrainingResult,
) -> None:
    agent = TrainedAgent.load(trained.artifacts.agent).to_langchain()
    found = agent.invoke({"messages": [("user", "List all files of the project.")]})
    called = [
        c["name"] for m in found["messages"] for c in getattr(m, "tool_calls", [])
    ]
    assert "list_files" in called
