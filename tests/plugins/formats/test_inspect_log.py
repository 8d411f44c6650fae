"""Rollouts as logs of inspect_ai."""

import json
import os
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from agentgym.core.trajectory import Trajectory
from agentgym.errors import UsageError
from agentgym.plugins.formats.exports import write_log
from tests.plugins.formats.test_atif import rollout

_READ = """
import json, sys
from inspect_ai.log import read_eval_log
log = read_eval_log(sys.argv[1])
assert log.status == "success" and log.eval.task == "files"
print(json.dumps([[s.id, s.epoch, s.scores["success"].value if s.scores else None,
    [m.role for m in s.messages], s.error and s.error.message]
    for s in sorted(log.samples, key=lambda s: (s.id, s.epoch))]))
"""


def log(folder: Path) -> Path:
    dropped = Trajectory(rollout_id="r2", scenario="files", task_id="u")
    won = rollout().model_copy(update={"success": True, "reward": 1.0})
    path = folder / "x.eval"
    assert write_log(path, [rollout(), won, dropped]) == 3
    return path


def test_a_log_has_each_rollout_as_an_epoch_of_its_task(tmp_path: Path) -> None:
    with ZipFile(log(tmp_path)) as archive:
        header = json.loads(archive.read("header.json"))
        summaries = json.loads(archive.read("summaries.json"))
        sample = json.loads(archive.read("samples/t_epoch_1.json"))
    assert header["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 0.5
    assert [(each["id"], each["epoch"]) for each in summaries] == [
        ("t", 1),
        ("t", 2),
        ("u", 1),
    ]
    roles = [message["role"] for message in sample["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user",
                     "assistant", "tool"]  # fmt: skip
    assert sample["messages"][2]["tool_calls"][0]["arguments"] == {"path": "a"}
    assert "not a JSON object" in sample["messages"][6]["tool_calls"][0]["parse_error"]
    assert sample["messages"][7]["error"]["message"] == "malformed"


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in \.eval"):
        write_log(tmp_path / "x.json", [])


@pytest.mark.slow
@pytest.mark.skipif(
    "FORMATS_ENVIRONMENT" not in os.environ,
    reason="FORMATS_ENVIRONMENT, with inspect-ai and harbor, is not set",
)
def test_inspect_ai_reads_the_log(tmp_path: Path) -> None:
    python = Path(os.environ["FORMATS_ENVIRONMENT"], "bin", "python")
    command = [python, "-c", _READ, log(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert [each[:3] for each in found] == [
        ["t", 1, 0.0],
        ["t", 2, 1.0],
        ["u", 1, None],
    ]
    assert found[0][3][:4] == ["system", "user", "assistant", "tool"]
    assert found[2][4] is not None
