"""verl with Ray and sampling on the CPU; docs/gpu_training.md says how to run these."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from agentgym import Trainer
from agentgym.engines.local.engine import LocalEngine
from agentgym.models.nano import nano_path
from agentgym.plugins.verl.engine import VerlEngine
from tests.plugins.verl.running import (
    check_sampled,
    config,
    on_cpu,
    tensors,
    updates_of,
)
from tests.processes import listening, processes_of

__all__ = ["on_cpu"]

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

_KILLED = """
import sys, time
from pathlib import Path
from agentgym.plugins.verl.engine import VerlEngine
from tests.plugins.verl.running import config
engine = VerlEngine.create(config(Path(sys.argv[1])))
print("ready", flush=True)
time.sleep(600)
"""


def test_grpo_steps_as_the_local_engine_does_them_and_a_resume(
    on_cpu: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    seen = updates_of(VerlEngine, monkeypatch)
    settings = config(tmp_path, name="whole", algorithm="grpo")
    first = Trainer(settings).train()
    assert first.steps == 2
    one = tensors(first.artifacts.agent)  # the resumed run writes its own there
    result = Trainer(settings).train(resume=tmp_path / "whole", episodes=24)
    assert result.steps == 3
    assert [done.step for _, done in seen] == [1, 2, 3]
    assert all(batch.trained_tokens for batch, _ in seen)

    # Weights are pushed after an update, and after a checkpoint was loaded.
    untrained = check_sampled(seen, settings)
    gaps = ", ".join(f"{done.logprob_gap:.1e}" for _, done in seen)
    told = f"verl with transformers: gaps of {gaps} nats, untrained {untrained:.1e}"
    record_property("measured", told)

    # The first step is the local engine's.
    local = LocalEngine.create(
        settings.replaced(engine="local", gpu="none", verl={"settings": {}})
    )
    try:
        same = local.update(seen[0][0])
    finally:
        local.close()
    done = seen[0][1]
    assert done.loss == pytest.approx(same.loss, abs=1e-5)
    assert done.grad_norm == pytest.approx(same.grad_norm, abs=1e-5)
    assert done.entropy == pytest.approx(same.entropy, abs=1e-5)
    assert done.clip_fraction == pytest.approx(same.clip_fraction, abs=1e-5)

    # Every tensor has moved, and moved again after the resume.
    before = tensors(nano_path())
    two = tensors(result.artifacts.agent)
    assert before.keys() == one.keys() == two.keys()
    for name in before:
        assert not torch.equal(before[name].float(), one[name].float()), name
        assert not torch.equal(one[name], two[name]), name
    credit = (tmp_path / "whole" / "credit.jsonl").read_text().splitlines()
    calls = [call for line in credit for call in json.loads(line)["calls"]]
    assert any({"gaps", "entropy", "kl"} <= set(call) for call in calls)
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3]
    assert processes_of(on_cpu) == []


def test_ray_listens_on_loopback_and_nothing_is_left_of_a_run_that_was_killed(
    on_cpu: str, tmp_path: Path
) -> None:
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), os.environ["PYTHONPATH"]])
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(processes_of(on_cpu, patience_s=0)) > 4
        addresses = listening(on_cpu)
        assert len(addresses) > 4
        open_to_all = [address for address in addresses if address != "127.0.0.1"]
        assert len(open_to_all) == 1, "torch's store, which cannot be told otherwise"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert processes_of(on_cpu) == []
