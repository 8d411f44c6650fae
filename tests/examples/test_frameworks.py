"""The apps of the examples: trained as they are, then used.

Each trains for real, in a process of its own: what is shown is what a user runs. All
but the first are a sweep: ``tests/train/test_unchanged.py`` trains every app.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.variants import first_of

FOLDER = Path(__file__).parents[2] / "examples"
# ADK cannot be installed beside CrewAI: its app is only read here.
APPS = {
    "bring_your_agent/langgraph": "clinic.py",
    "bring_your_agent/autogen": "warehouse.py",
    "bring_your_agent/crewai": "library.py",
    "adk": "post.py",
    "agent_framework": "hotel.py",
    "llamaindex": "garage.py",
    "openai_agents": "bike_shop.py",
    "pydantic_ai": "bank.py",
    "strands": "kitchen.py",
}
FEW = {
    "AGENTGYM_TEST_TASKS": "4",
    "AGENTGYM_EVAL_TASKS": "4",
    "AGENTGYM_EVAL_SAMPLES": "1",
}
"""Few measured rollouts: that an app trains and answers is tested, not how well."""


@pytest.mark.parametrize("framework", APPS)
def test_an_app_knows_nothing_of_training(framework: str) -> None:
    assert "agentgym" not in (FOLDER / framework / APPS[framework]).read_text().lower()
    top, _, inner = framework.partition("/")
    app = f"{inner}/{APPS[framework]}" if inner else APPS[framework]
    assert f"[{app}]" in (FOLDER / top / "README.md").read_text()
    assert f"({top}/README.md)" in (FOLDER / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", first_of([a for a in APPS if a != "adk"]))
def test_an_app_is_trained_as_it_is_and_used(framework: str, tmp_path: Path) -> None:
    folder = tmp_path / framework
    shutil.copytree(FOLDER / framework, folder)
    app = (folder / APPS[framework]).read_bytes()
    ended = subprocess.run(
        [sys.executable, "train.py", "64"],
        cwd=folder,
        env={**os.environ, **FEW, "AGENTGYM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    first, *said = ended.stdout.strip().splitlines()
    assert re.fullmatch(r"[\d.]+ -> [\d.]+", first)
    assert said
    assert (folder / APPS[framework]).read_bytes() == app
    assert (tmp_path / "home" / "agents").is_dir()
