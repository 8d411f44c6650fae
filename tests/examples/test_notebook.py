"""The notebook runs in a real kernel, and its committed outputs are those of a run."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

PATH = Path(__file__).parents[2] / "examples" / "notebook" / "train.ipynb"


def shown(notebook: Any) -> dict[str, str]:
    """Return each code cell's outputs as one text, by the cell's source."""
    found = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            data = [output.get("data", {}) for output in cell.outputs]
            parts = [output.get("text", "") for output in cell.outputs]
            parts += [each.get(kind, "") for each in data for kind in sorted(each)]
            found[cell.source] = "\n".join(parts)
    return found


def require_outputs(notebook: Any) -> None:
    """Fail unless training, results, agent and rollouts are shown."""
    training, result, printed, agent, measured, rollouts = shown(notebook).values()
    assert re.search(r"baseline: +100%\|", training)
    assert re.search(r"training: .*step \d", training)
    verdict = printed.splitlines()[0]
    assert re.search(r"pass\^1 \d+ % -> \d+ %", printed)
    assert verdict in training
    assert "<table>" in result
    assert verdict in result
    assert "['human', 'ai'" in agent
    assert "validation split" in measured
    assert "2 rollouts: 2 succeeded" in rollouts


def test_the_committed_outputs_name_no_machine() -> None:
    text = PATH.read_text()
    require_outputs(nbformat.reads(text, as_version=4))
    assert not re.search(r"/(home|root|tmp|Users|work)/", text)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_cell_works_inside_the_kernels_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    notebook = nbformat.read(PATH, as_version=4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
            cell.source = cell.source.replace("episodes=1280", "episodes=64")
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=500, resources=where).execute()
    require_outputs(notebook)
