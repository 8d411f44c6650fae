"""Snippets of the docs that use a trained agent run, with the shipped weights.

``test_docs.py`` compiles those that train on files of the reader's, or ask a provider.
"""

from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, SNIPPET
from tests.integrations.exported import trained_in

SLOW = pytest.mark.slow  # imports a framework, and samples from a model
SWEEP = pytest.mark.sweep  # gives the agent back to every framework
FEW = ("tasks=40, samples=4", "tasks=2, samples=1")


@pytest.mark.parametrize(
    ("page", "word", "budget"),
    [
        pytest.param("quickstart.md", "TrainedAgent", ("", ""), marks=SLOW),
        pytest.param("api.md", "evaluate(", FEW, marks=SLOW),
        pytest.param("api.md", "deploy(", ("", ""), marks=SLOW),
        pytest.param("api.md", "TrainedAgent.load", ("", ""), marks=SWEEP),
    ],
)
def test_snippet_runs(
    page: str,
    word: str,
    budget: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").mkdir()
    trained_in(tmp_path / "made", "langchain").save("coding")
    found = SNIPPET.finditer((ROOT / "docs" / page).read_text())
    [code] = [match[2] for match in found if match[1] and word in match[2]]
    assert budget[0] in code
    code = code.replace(*budget, 1)
    exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})
