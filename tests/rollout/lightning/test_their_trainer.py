"""Agent Lightning's trainer with our agents; see docs/agent_lightning.md."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from agentgym.models.nano import nano_path
from tests.processes import MARK, processes_of

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(900)]

ENVIRONMENT = "AGENTLIGHTNING_ENVIRONMENT"
KEY = "a key"
HERE = Path(__file__).parent
TASKS, GROUP = 4, 4


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a mark in the environment of all that is started here."""
    if not os.environ.get(ENVIRONMENT):
        pytest.skip(f"{ENVIRONMENT} names no environment with agentlightning and verl")
    mark = f"{os.getpid()}-{time.time_ns()}"
    monkeypatch.setenv(MARK, mark)
    return mark


def agentgym(*words: str) -> list[str]:
    return [sys.executable, "-m", "agentgym", *words]


def test_their_trainer_makes_a_step_on_what_our_agents_do(
    marked: str, tmp_path: Path
) -> None:
    rows, weights = tmp_path / "rows.jsonl", tmp_path / "weights"
    made = agentgym("scenarios", "tasks", "coding", "--count", str(TASKS))
    subprocess.run([*made, "--output", str(rows)], check=True)
    model = str(nano_path())
    gateway = subprocess.Popen(
        agentgym(
            *("gateway", "coding", "--framework", "langchain", "--workers", "1"),
            *("--port", "0", "--model-name", model, "--data", str(tmp_path / "data")),
            *("--max-tokens", "96", "--timeout", "300"),
        ),
        env={**os.environ, "AGENTGYM_GATEWAY_KEY": KEY, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert gateway.stdout is not None
        said = iter(gateway.stdout.readline, "")
        url = next(line.split()[-1] for line in said if "address" in line)
        metrics = tmp_path / "metrics.jsonl"
        asked = {"model": model, "url": url, "key": KEY, "rows": str(rows)}
        with TemporaryDirectory(prefix="ray") as short:  # it makes sockets there
            train(
                {**asked, "folder": str(tmp_path / "checkpoints")},
                log=tmp_path / "trainer.log",
                VERL_FILE_LOGGER_PATH=str(metrics),
                CPU_ROLLOUT_LOG=str(weights),
                HOME=short,
                RAY_TMPDIR=short,
            )
        header = {"Authorization": f"Bearer {KEY}"}
        found = httpx.get(f"{url}/api/rollouts/terminal", headers=header).json()
        assert found["total_terminal"] == TASKS * GROUP
    finally:
        gateway.send_signal(signal.SIGINT)
        gateway.wait(60)
    [line] = metrics.read_text().splitlines()
    step = json.loads(line)["data"]
    assert step["training/n_sample_trained"] > 0
    assert step["actor/grad_norm"] > 0
    assert step["training/n_groups"] > step["training/n_zero_adv_groups"]
    before, *_, after = weights.read_text().splitlines()
    assert before != after
    assert processes_of(marked) == []


def train(asked: dict[str, str], *, log: Path, **variables: str) -> None:
    """Run their trainer to its end in its own environment."""
    root = HERE.parents[2]
    paths = [str(HERE), str(root / "tests" / "plugins" / "verl")]
    with log.open("wb") as file:
        done = subprocess.run(
            [
                str(Path(os.environ[ENVIRONMENT]).resolve() / "bin" / "python"),
                str(HERE / "train.py"),
                json.dumps(asked),
            ],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "VERL_USE_EXTERNAL_MODULES": "cpu_lightning",
                "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
                "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # it is not uv that runs it
                "RAY_enable_worker_prestart": "0",
                "OMP_NUM_THREADS": "1",
                **variables,
            },
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=600,
            check=False,
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-4000:]
