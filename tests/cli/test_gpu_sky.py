"""``agentgym gpu`` and ``train`` with SkyPilot: what is shown and refused."""

import json

import pytest

from agentgym.install import install_command
from tests.cli.conftest import Command
from tests.plugins.cloud.fakes.runpod import FakeRunPod
from tests.plugins.cloud.fakes.sky import SPOT, FakeSky

TRAIN = ["train", "coding", "--framework", "native", "--model", "Qwen/Qwen3-4B"]


@pytest.mark.slow
def test_a_dry_run_quotes_and_rents_nothing(agentgym: Command, sky: FakeSky) -> None:
    ended = agentgym(*TRAIN, "--gpu", "sky", "--dry-run")
    assert ended.code == 0, ended.err
    assert "$0.70 an hour" in " ".join(ended.out.split())
    ended = agentgym(*TRAIN, "--gpu", "sky:a100", "--dry-run")
    assert "$3.20 an hour" in " ".join(ended.out.split())
    ended = agentgym(*TRAIN, "--gpu", "sky", "--dry-run", "--max-hourly", "0.5")
    assert ended.code == 2
    assert "--max-hourly is $0.50" in " ".join(ended.err.split())
    ended = agentgym(*TRAIN, "--gpu", "sky:B300", "--dry-run")
    assert "sky has no GPU 'B300'" in " ".join(ended.err.split())
    assert sky["launches"] == []


@pytest.mark.slow
def test_spot_machines_are_shown_and_quoted_only_where_they_are_wanted(
    agentgym: Command, sky: FakeSky, runpod: FakeRunPod
) -> None:
    sky.change(gpus=SPOT)
    shown = ("gpu", "prices", "--provider", "sky")
    assert "0.20" not in agentgym(*shown).out
    rows = json.loads(agentgym(*shown, "--spot", "--json").out)
    assert [row["hourly"] for row in rows] == [0.2, 0.3]
    unnamed = agentgym("gpu", "prices", "--spot", "--json")
    assert json.loads(unnamed.out) == rows, "only SkyPilot has any"
    refused = agentgym("gpu", "prices", "--spot", "--provider", "runpod")
    assert "Take --gpu sky" in refused.err
    ended = agentgym(*TRAIN, "--gpu", "sky", "--spot", "--dry-run")
    told = " ".join(ended.out.split())
    assert "$0.20 an hour as a spot machine" in told
    assert "may be taken away at any time. The run then goes on" in told
    assert "may rise to that on demand, $0.80 an hour" in told
    assert sky["launches"] == []


def test_without_skypilot(agentgym: Command) -> None:
    ended = agentgym(*TRAIN, "--gpu", "sky", "--dry-run")
    assert ended.code == 1
    assert install_command("sky") in " ".join(ended.err.split())


@pytest.mark.slow
def test_reap_ends_its_clusters_and_no_others(agentgym: Command, sky: FakeSky) -> None:
    sky.change(clusters={"agentgym-a-1": "UP", "mine": "UP"})
    assert agentgym("gpu", "reap", "--all").code == 2  # nobody is here to be asked
    assert list(sky["clusters"]) == ["agentgym-a-1", "mine"]
    ended = agentgym("gpu", "reap", "--all", "--yes", "--json")
    assert ended.code == 0, ended.err
    assert [row["name"] for row in json.loads(ended.out)] == ["agentgym-a-1"]
    assert list(sky["clusters"]) == ["mine"]
    sky.change(garbage=True)
    ended = agentgym("gpu", "reap", "--yes")
    assert ended.code == 1
    assert "printed no JSON" in " ".join(ended.err.split())
