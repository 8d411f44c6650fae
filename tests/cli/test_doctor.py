"""``agentgym doctor``: of this machine, and of a run."""

import json
import os
from collections import Counter
from dataclasses import asdict

import pytest

from agentgym import TrainingConfig
from agentgym.core.ledger import Ledger
from agentgym.install import install_command
from agentgym.plugins.doctor import machine
from agentgym.plugins.doctor.machine import Check
from agentgym.sandbox.guest.settings import RUNGS
from agentgym.train.run_folder import RunFolder
from agentgym.train.run_state import RunState
from tests.cli.conftest import Command
from tests.ui import made_up


def make_run(ledger: Ledger) -> None:
    """Make the run ./runs/first with ``ledger``."""
    run = RunFolder.create(TrainingConfig.create(name="first"))
    for number in range(1, 31):
        run.append_metrics(asdict(made_up.step(number)))
    base = {"test": made_up.metrics(0.3)}
    state = RunState(step=30, ledger=ledger, baseline=base)
    with run.new_checkpoint(state):
        pass


def test_machine_is_looked_at(agentgym: Command) -> None:
    checks = {c["name"]: c for c in json.loads(agentgym("doctor", "--json").out)}
    for name in ("python", "cpu", "extra local", "sandbox", "AGENTGYM_HOME", "disk"):
        assert name in checks
    assert checks["extra local"]["state"] == "ok"
    assert checks["kernel"]["detail"] == f"{os.uname().sysname} {os.uname().release}"
    assert checks["sandbox"]["detail"].split()[0] in (*RUNGS, "No")
    text = agentgym("doctor").out
    assert "AGENTGYM_HOME" in text


@pytest.mark.parametrize(("state", "code"), [("missing", 0), ("broken", 1)])
def test_only_what_is_broken_fails(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    advice = install_command("local")
    said = "without torch"
    found = [Check("extra local", state, said, advice)]  # type: ignore[arg-type]
    monkeypatch.setattr(machine, "check_machine", lambda: found)
    ended = agentgym("doctor")
    assert ended.code == code
    assert f"\n  {advice}\n" in ended.out  # on a line of its own, to be copied


def test_healthy_run(agentgym: Command) -> None:
    make_run(made_up.ledger())
    ended = agentgym("doctor", "first")
    assert ended.code == 0
    assert "9,000 trained, 800 masked, 200 dropped" in ended.out
    assert "masked, zero_variance: 800" in ended.out
    assert "Nothing stands in the way" in ended.out


def test_sick_run_names_the_likeliest_cause(agentgym: Command) -> None:
    masked = Counter(span_not_found=90)
    make_run(made_up.ledger(calls=100, trained=10, masked=masked))
    ended = agentgym("doctor", "first")
    assert ended.code == 1
    assert "Likeliest cause: most model calls were masked" in ended.out
    found = json.loads(agentgym("doctor", "runs/first", "--json").out)
    assert found["findings"][0]["severity"] == "critical"
    assert found["ledger"]["calls"] == 100
