"""``agentgym gpu`` and ``train`` with a rented machine: what is shown and refused."""

import json
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.plugins.cloud.record import MachineRecord
from agentgym.train.run_folder import RunFolder
from tests.cli.conftest import Command
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda
from tests.plugins.cloud.fakes.runpod import FakeRunPod

TRAIN = ["train", "coding", "--framework", "native", "--model", "Qwen/Qwen3-4B"]


def test_list_needs_no_network(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "planted-1234567")
    ended = agentgym("gpu", "list")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].split()[:2] == ["local", "ready"]
    assert "RUNPOD_API_KEY is set" in ended.out
    assert "LAMBDA_API_KEY" in ended.out
    rows = json.loads(agentgym("gpu", "list", "--json").out)
    assert [(row["name"], bool(row["problem"])) for row in rows] == [
        ("local", False),
        ("runpod", False),
        ("lambda", True),
        ("sky", True),
    ]
    assert "planted" not in ended.out + ended.err + json.dumps(rows)


@pytest.mark.slow
def test_prices_come_cheapest_first(
    agentgym: Command, runpod: FakeRunPod, lambda_cloud: FakeLambda
) -> None:
    out = agentgym("gpu", "prices").out
    assert [line.split()[0] for line in out.splitlines()[1:5]] == [
        "0.27",
        "0.45",
        "0.71",
        "1.29",
    ]
    assert "taken" in out
    assert "GH200" not in out  # its processor is an ARM
    fitting = agentgym("gpu", "prices", "--model", "Qwen/Qwen3-4B")
    assert "needs 19 GB" in fitting.out
    assert "RTX A4000" not in fitting.out
    rows = json.loads(agentgym("gpu", "prices", "--provider", "lambda", "--json").out)
    assert {row["provider"] for row in rows} == {"lambda"}


def left(runpod: FakeRunPod, name: str, machine: str) -> RunFolder:
    run = RunFolder.create(TrainingConfig.create(name=name))
    pod = runpod.make(machine)
    MachineRecord(machine, "runpod", "rented", id=pod["id"], hourly=0.43).write(
        run.path
    )
    return run


def fate(run: RunFolder) -> str:
    found = MachineRecord.read(run.path)
    assert found is not None
    return found.fate


def test_reap_asks_and_without_an_answer_ends_nothing(
    agentgym: Command, runpod: FakeRunPod
) -> None:
    run = left(runpod, "a", "agentgym-a-1")
    ended = agentgym("gpu", "reap")
    assert ended.code == 2
    assert "agentgym-a-1" in ended.out
    assert "--yes" in ended.err
    assert (len(runpod.pods), fate(run)) == (1, "rented")


def test_what_a_run_costs_is_in_the_lists(
    agentgym: Command, runpod: FakeRunPod
) -> None:
    RunFolder.create(TrainingConfig.create(name="here"))
    assert "MACHINE" not in agentgym("runs", "list").out
    run = left(runpod, "a", "agentgym-a-1")
    found = MachineRecord.read(run.path)
    assert found is not None
    found.changed(before=1.5, gpu="L4").write(run.path)
    assert "runpod $1.50, may cost more" in agentgym("runs", "list").out
    row, other = json.loads(agentgym("runs", "list", "--json").out)
    assert (row["machine"]["open"], row["machine"]["cost"]) == (True, 1.5)
    assert other["machine"] is None
    shown = agentgym("runs", "show", "a").out
    assert "L4 (agentgym-a-1) is rented" in " ".join(shown.split())
    assert "gpu reap" in shown
    assert json.loads(agentgym("runs", "show", "a", "--json").out)["machine"]["open"]
    agentgym("gpu", "reap", "--yes")
    assert "may cost more" not in agentgym("runs", "list").out
    assert "is ended" in " ".join(agentgym("runs", "show", "a").out.split())
    (run.path / "machine.json").write_text("{")
    assert "machine.json unreadable" in agentgym("runs", "list").out
    broken, _ = json.loads(agentgym("runs", "list", "--json").out)
    assert broken["machine"].keys() == row["machine"].keys()


def test_reap_leaves_runs_alone_that_go_on(
    agentgym: Command, runpod: FakeRunPod
) -> None:
    run = left(runpod, "a", "agentgym-a-1")
    other = left(runpod, "b", "agentgym-b-2")
    with run.lock():
        rows = json.loads(agentgym("gpu", "reap", "--yes", "--json").out)
    assert {row["name"]: row["ended"] for row in rows} == {
        "agentgym-a-1": False,
        "agentgym-b-2": True,
    }
    assert (fate(run), fate(other)) == ("rented", "ended")


@pytest.mark.slow
def test_a_dry_run_shows_the_quote(agentgym: Command, runpod: FakeRunPod) -> None:
    words = [*TRAIN, "--gpu", "runpod", "--dry-run"]
    ended = agentgym(*words)
    assert ended.code == 0
    out = " ".join(ended.out.split())
    for told in ("rented of runpod", "$0.71 an hour", "(assumed, not measured"):
        assert told in out
    assert "stopped at $" in out
    assert "If that is taken: L4 $0.45 an hour" in out
    found = json.loads(agentgym(*words, "--json").out)
    assert found["quotes"][0]["gpu"] == "RTX 4090"
    assert found["quotes"][0]["needed_gb"] < 24
    assert not [asked for asked in runpod.asked if asked.method == "POST"]
    assert not Path("runs").exists()


def test_without_a_terminal_nothing_is_rented(
    agentgym: Command, runpod: FakeRunPod
) -> None:
    ended = agentgym(*TRAIN, "--gpu", "runpod")
    assert ended.code == 2
    assert "Nothing was rented, since this is not a terminal" in ended.err
    assert "--yes" in ended.err
    assert not [asked for asked in runpod.asked if asked.method == "POST"]
    assert not Path("runs/r").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--gpu", "runpod", "--max-hourly", "0.1"], "--max-hourly is $0.10"),
        (["--gpu", "runpod", "--max-cost", "0.1"], "more than --max-cost $0.10"),
        (["--gpu", "runpod", "--max-cost", "-3"], "max_cost = -3"),
        (["--gpu", "runpot"], "did you mean 'runpod'"),
        (["--gpu", "runpod:"], "gpu = 'runpod:'"),
    ],
    ids=str,
)
def test_bad_input_is_one_sentence(
    agentgym: Command, runpod: FakeRunPod, words: list[str], told: str
) -> None:
    ended = agentgym(*TRAIN, *words, "--dry-run")
    assert ended.code == 2
    assert told in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_reap_ends_what_is_its_own(agentgym: Command, runpod: FakeRunPod) -> None:
    run = left(runpod, "a", "agentgym-a-1")
    other = runpod.make("agentgym-unknown-2")
    theirs = runpod.make("production")
    ended = agentgym("gpu", "reap", "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert (set(runpod.pods), fate(run)) == ({theirs["id"], other["id"]}, "ended")
    assert "--all" in ended.out
    ended = agentgym("gpu", "reap", "--all", "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert "not of this folder" in ended.out
    assert "production" not in ended.out
    assert (set(runpod.pods), fate(run)) == ({theirs["id"]}, "ended")
    assert "nothing of AgentGym's is rented" in agentgym("gpu", "reap").out
