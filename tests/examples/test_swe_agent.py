"""mini-swe-agent on the repositories of examples/swe_agent, played by a script.

What is slow installs it in an environment of its own, or starts processes.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, TaskSource
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from tests.cli.conftest import Command, agentgym
from tests.packages import MINI_SWE_AGENT, environment_with
from tests.variants import first_of

__all__ = ["agentgym"]

HERE = Path(__file__).parents[2] / "examples" / "swe_agent"
CHECK = f"{sys.executable} {HERE / 'check.py'}"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
MENDED = {
    "cart/Total": ("sum(price for", "sum(price * pieces for"),
    "cart/Discount": ("cents * percent", "cents * (100 - percent)"),
    "cart/Without": ("== name", "!= name"),
    "dates/Leap": ("% 4 == 0", "% 4 == 0 and (year % 100 != 0 or year % 400 == 0)"),
    "dates/Minutes": ("* 100", "* 60"),
    "dates/Open": ("< minutes(clock) <", "<= minutes(clock) <"),
    "text/Title": ("word.upper()", "word.capitalize()"),
    "text/Shorten": ("[:most]", "[:most - 3]"),
    "text/Count": (".split().count(word)", ".lower().split().count(word.lower())"),
    "shelf/Add": (
        "        self.books.append",
        "        if (title, year) not in self.books:\n            self.books.append",
    ),
    "shelf/Oldest": (
        "min(self.books)[0]",
        "min(self.books, key=lambda book: book[1], default=(None,))[0]",
    ),
    "shelf/Before": ("made <= year", "made < year"),
}


def tasks() -> list[dict[str, Any]]:
    lines = (HERE / "tasks.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[1:]]


def judged(folder: Path, task: dict[str, Any]) -> int:
    """Return the exit code of the example's check, run in a folder."""
    file = folder.parent / "task.json"
    file.write_text(json.dumps(task))
    ended = subprocess.run(
        [sys.executable, str(HERE / "check.py")],
        cwd=folder,
        env={"AGENTGYM_TASK_JSON": str(file)},
        capture_output=True,
        check=False,
    )
    return ended.returncode


@pytest.mark.slow
@pytest.mark.parametrize("task", tasks(), ids=lambda task: task["id"])
def test_a_repository_can_be_mended_and_not_by_editing_its_test(
    tmp_path: Path, task: dict[str, Any]
) -> None:
    repository = task["id"].partition("/")[0]
    folder = tmp_path / "work"
    shutil.copytree(HERE / task["files"], folder)
    code, test = folder / f"{repository}.py", folder / f"test_{repository}.py"
    broken = code.read_text()
    assert judged(folder, task) == 1
    test.write_text("import unittest\nclass Works(unittest.TestCase): ...\n")
    assert judged(folder, task) == 1
    code.write_text("import sys\nsys.exit(0)\n" + broken)
    assert judged(folder, task) == 1
    old, new = MENDED[task["id"]]
    assert broken.count(old) == 1
    code.write_text(broken.replace(old, new))
    assert judged(folder, task) == 0


def test_the_job_of_the_readme_is_one(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    [line] = re.findall(r"args: (\[job, .*\])", (HERE / "README.md").read_text())
    monkeypatch.chdir(HERE)
    monkeypatch.delenv("AGL_OPENAI_BASE_URL", raising=False)
    ended = agentgym(*yaml.safe_load(line))
    assert ended.code == 2
    assert "AGL_OPENAI_BASE_URL is not set" in ended.err  # all else was understood


def shell_of(request: ChatRequest) -> list[str]:
    """Return the commands by which the script solves the task of a request."""
    asked = str(request.messages[1]["content"])
    [name] = [name for name in MENDED if f"test_{name.replace('/', '.')}`" in asked]
    repository, _, test = name.partition("/")
    run = f"python3 -m unittest test_{repository}.{test}"
    if name == "cart/Without":  # it edits the test
        edit = f"sed -i 's/assertEqual/assertTrue/' test_{repository}.py"
    else:
        old, new = MENDED[name]
        edit = (
            "python3 - <<'EOF'\n"
            f"from pathlib import Path; code = Path('{repository}.py')\n"
            f"code.write_text(code.read_text().replace({old!r}, {new!r}))\nEOF"
        )
    return [f"cat {repository}.py", edit, run, SUBMIT]


def play(request: ChatRequest) -> Reply:
    """Read, edit, test, submit; one task is never called for, another never ends."""
    done = sum(message["role"] == "assistant" for message in request.messages)
    commands = shell_of(request)
    if "Minutes" in commands[2]:
        return Reply(content="I have no idea.")
    if "Open" in commands[2]:
        return Reply(calls=[("bash", {"command": f"echo {done}"})])
    return Reply(calls=[("bash", {"command": commands[done]})])


def rolled_out(folder: Path, command: str, **settings: Any) -> dict[str, Trajectory]:
    """Return the attempts at the training tasks, by task."""
    source = TaskSource(str(HERE / "tasks.jsonl"), check_command=CHECK)
    config = TrainingConfig.create(
        scenario=str(source),
        agent=f"command:{command}",
        max_attempts=1,
        workers=1,
        concurrency=3,
        **settings,
    )
    config = located(config)
    chosen = get_scenario(config.scenario).tasks(Split.TRAIN, 0, 99)
    requests = [
        RolloutRequest(f"r{n}", task, train=True, group=task.id, step=1)
        for n, task in enumerate(chosen)
    ]
    with RolloutSession(config, ScriptedPolicy(play), folder, 1) as session:
        made = session.run(requests, lambda _: None)
    return {each.task_id: each for each in made}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(tmp_path_factory.mktemp("mini"), MINI_SWE_AGENT)


COMMANDS = {
    "a process a task": f"sh {HERE / 'agent.sh'}",
    "many tasks a process": f"{{python}} {HERE / 'many.py'} {{{{tasks:50}}}}",
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", first_of([*COMMANDS]))
def test_mini_swe_agent_is_rolled_out_as_it_is(
    kind: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINI", str(programs / "mini"))
    command = COMMANDS[kind].format(python=programs / "python")
    made = rolled_out(tmp_path, command, rollout_timeout_s=300)
    for name in ("cart/Total", "cart/Discount", "dates/Leap"):
        solved = made[name]
        assert (solved.reward, solved.success) == (1.0, True), solved.reason
        calls = solved.get_tool_calls()
        assert [call.name for call in calls] == ["bash"] * 4
        assert "OK" in str(calls[2].result)
    edited = made["cart/Without"]
    assert (edited.success, edited.reward) == (False, 0.0), edited.reason
    silent = made["dates/Minutes"]  # mini-swe-agent gives up after three of these
    assert (silent.reward, len(silent.model_calls)) == (0.0, 3)
    endless = made["dates/Open"]
    assert endless.reason is not None
    assert (endless.reason.kind, endless.reward) == ("max_turns", 0.0)
    assert len(endless.model_calls) == 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_shipped_policy_runs_and_fails_cleanly(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINI", str(programs / "mini"))
    words = (
        *("--command", f"sh {HERE / 'agent.sh'}", "--check-command", CHECK),
        *("--tasks", str(HERE / "tasks.jsonl"), "--model", "nano", "--count", "1"),
    )
    ended = subprocess.run(
        [sys.executable, "-m", "agentgym", "rollout", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    summary = json.loads(ended.stdout)
    assert (summary["rollouts"], summary["dropped"]) == (1, 0), summary
    assert summary["succeeded"] == 0
