"""The examples of scenarios train and show the agent at work, as their README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "scenarios"
SMALL = {
    "AGENTGYM_TEST_TASKS": "8",
    "AGENTGYM_EVAL_TASKS": "8",
    "AGENTGYM_EVAL_SAMPLES": "1",
}


def test_every_example_is_in_the_readme() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        if path.is_dir() and path.name not in ("scenarios", "__pycache__"):
            assert f"({path.name}/README.md)" in readme
    scripts = sorted(path.name for path in FOLDER.glob("*.py"))
    assert scripts == ["coding.py", "customer_support.py", "flight_booking.py"]
    assert all(f"(scenarios/{name})" in readme for name in scripts)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param("coding.py", "  read_file {'path':", marks=pytest.mark.slow),
        pytest.param("customer_support.py", ": Hi, ", marks=pytest.mark.slow),
        pytest.param("flight_booking.py", "succeeded: ", marks=pytest.mark.sweep),
    ],
)
def test_a_scenario_is_trained_and_shown(tmp_path: Path, name: str, shown: str) -> None:
    ended = subprocess.run(
        [sys.executable, FOLDER / name, "64"],
        cwd=tmp_path,
        env={**os.environ, **SMALL, "AGENTGYM_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    first, *said = ended.stdout.splitlines()
    assert re.fullmatch(r"held-out tasks solved: \d+% -> \d+%", first)
    assert any(shown in line for line in said)
