"""The programs of examples/any_program, each looked into and rolled out.

Slow: a process an episode. A language or package that is missing skips its program.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import probed

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[2] / "examples" / "any_program"


def require_node(folder: Path) -> str:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    shutil.copy(HERE / "agent.mjs", folder)
    shutil.copy(HERE / "package.json", folder)
    made = subprocess.run(["npm", "install", "--silent"], cwd=folder, check=False)
    if made.returncode != 0:
        pytest.skip("npm cannot install the package openai")
    return f"node {folder / 'agent.mjs'}"


def require_anthropic(folder: Path) -> str:
    pytest.importorskip("anthropic", reason="pip install anthropic")
    return f"{sys.executable} {HERE / 'agent_anthropic.py'}"


def require_go(folder: Path) -> str:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    built = ["go", "build", "-o", str(folder / "bookshop"), str(HERE / "agent.go")]
    subprocess.run(built, env={**os.environ, "GOCACHE": str(folder)}, check=True)
    return str(folder / "bookshop")


@pytest.mark.parametrize("program", [require_node, require_anthropic, require_go])
def test_the_bookshops_agents_can_be_trained(tmp_path: Path, program: object) -> None:
    assert callable(program)
    command = program(tmp_path)
    config = TrainingConfig.create(
        scenario=str(HERE / "tasks.jsonl"), agent=f"command:{command}"
    )
    report = probed(located(config))
    assert report.problems == []
    assert report.own == {"stock": "really runs", "order": "really runs"}


def test_a_shell_script_is_judged_by_a_command() -> None:
    for name in ("curl", "jq"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    options = {
        "--tasks": HERE / "notes.jsonl",
        "--command": f"sh {HERE / 'note.sh'}",
        "--check-command": f"{sys.executable} {HERE / 'check.py'}",
        "--model": "nano",
        "--count": 2,
    }
    words = [str(word) for option in options.items() for word in option]
    ended = subprocess.run(
        [sys.executable, "-m", "agentgym", "rollout", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    summary = json.loads(ended.stdout)
    assert (summary["rollouts"], summary["dropped"]) == (2, 0), summary
