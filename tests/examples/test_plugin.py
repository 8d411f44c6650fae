"""examples/plugin: a stranger's package, installed and used by its entry points."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package, installed as pip does it."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(EXAMPLE, folder / "source")
    uv = shutil.which("uv")
    pip = [uv, "pip"] if uv else [sys.executable, "-m", "uv", "pip"]
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation"]
    where = ["--python", sys.executable, "--target", str(folder / "packages")]
    subprocess.run([*pip, *words, *where, str(source)], check=True)
    return folder / "packages"


def agentgym(installed: Path, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "agentgym", *words],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_its_command_is_one_of_agentgyms(installed: Path, tmp_path: Path) -> None:
    assert "List the beds" in agentgym(installed, tmp_path, "--help")
    said = agentgym(installed, tmp_path, "garden", "--split", "test")
    assert said == "beans, thyme, irises, radishes\n"
    assert "Example: agentgym garden" in agentgym(installed, tmp_path, "garden", "-h")


@pytest.mark.slow
def test_its_scenario_trains_in_its_framework(installed: Path, tmp_path: Path) -> None:
    sizes = ["--episodes", "16", "--set", "group_size=4", "--set", "tasks_per_step=2"]
    few = ["--set", "eval_tasks=2", "--set", "test_tasks=2", "--set", "eval_samples=2"]
    words = ["train", "garden", "--framework", "plain", *sizes, *few]
    agentgym(installed, tmp_path, *words, "--output", "runs", "--json")
    said = agentgym(installed, tmp_path, "runs", "list", "--json")
    assert '"framework": "plain"' in said
    assert '"status": "done"' in said
