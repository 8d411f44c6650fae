"""CrewAI is imported here as workers import it: without telemetry."""

import os
from pathlib import Path

import pytest

from agentgym.plugins.crewai.quiet import QUIET

os.environ.update(QUIET)

TEAMS = "tests.plugins.crewai.teams"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the desk scenario, here and for the workers."""
    info = tmp_path / "site" / "desk-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: desk\n")
    (info / "entry_points.txt").write_text(
        f"[agentgym.scenarios]\ndesk = {TEAMS}:DeskScenario\n"
    )
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}{os.pathsep}{os.getcwd()}")
