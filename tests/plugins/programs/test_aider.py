"""Aider as it comes from PyPI: one attempt with a script, one with the shipped model.

A sweep: it is installed in an environment of its own, of some 500 MB.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, TaskSource
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from tests.packages import AIDER, environment_with

pytestmark = pytest.mark.sweep

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "swe_agent"
CHECK = f"{sys.executable} {EXAMPLE / 'check.py'}"
EDIT = """The pieces are left out.

cart.py
<<<<<<< SEARCH
    return sum(price for _, price, pieces in lines)
=======
    return sum(price * pieces for _, price, pieces in lines)
>>>>>>> REPLACE
"""


def documented(folder: Path, programs: Path) -> str:
    """Write the script of docs/any_program.md, with the aider of an environment.

    Returns:
        The command that runs it.
    """
    page = (ROOT / "docs" / "any_program.md").read_text()
    [script] = [part for part in page.split("```") if "exec aider" in part]
    text = script.removeprefix("sh\n").replace("aider", str(programs / "aider"), 1)
    file = folder / "aider.sh"
    file.write_text(text)
    return f"sh {file}"


@pytest.mark.timeout(900)
def test_aider_mends_a_repository_and_fails_cleanly_with_a_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = documented(tmp_path, environment_with(tmp_path, AIDER))
    monkeypatch.setenv("HOME", str(tmp_path))  # it keeps settings and caches there
    source = TaskSource(str(EXAMPLE / "tasks.jsonl"), check_command=CHECK)
    config = located(
        TrainingConfig.create(
            scenario=str(source),
            agent=f"command:{command}",
            max_attempts=1,
            workers=1,
            rollout_timeout_s=300,
        )
    )
    asked: list[ChatRequest] = []

    def play(request: ChatRequest) -> Reply:
        asked.append(request)
        return Reply(content=EDIT)

    tasks = get_scenario(config.scenario).tasks(Split.TRAIN, 0, 99)
    [task] = [task for task in tasks if task.id == "cart/Total"]
    requests = [RolloutRequest("r", task, train=True, group=task.id, step=1)]
    run = tmp_path / "run"
    run.mkdir()
    with RolloutSession(config, ScriptedPolicy(play), run, 1) as session:
        [made] = session.run(requests, lambda _: None)
    assert (made.reward, made.success) == (1.0, True), made.reason
    assert [len(call.response_ids) for call in made.model_calls] == [len(EDIT)]
    assert asked[0].temperature == 1.0  # aider asks for 0, which would explore nothing

    words = (
        *("--command", command, "--check-command", CHECK, "--model", "nano"),
        *("--tasks", str(EXAMPLE / "tasks.jsonl"), "--count", "1", "--json"),
    )
    ended = subprocess.run(
        [sys.executable, "-m", "agentgym", "rollout", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    summary = json.loads(ended.stdout)
    assert (summary["rollouts"], summary["succeeded"]) == (1, 0), summary
    assert summary["reasons"], summary
