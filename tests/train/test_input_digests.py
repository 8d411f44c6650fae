"""What a run was begun with, and is resumed with."""

import sys
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.task import TaskSource
from agentgym.errors import UsageError
from agentgym.evaluate import events
from agentgym.train.run_folder import RunFolder
from agentgym.train.trainer import Trainer
from tests.scenarios.tool_tasks.shop import SOURCE, lines, write


class Warned(Exception):
    """Ends a resume at its first warning."""


def end_at_warning(event: events.Event) -> None:
    if isinstance(event, events.Warned):
        raise Warned(event.text)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Return a run of a tasks file, with tools that import another module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("prices.py").write_text("CHAIR = 20\n")
    Path("shop_tools.py").write_text(f"import prices\n{SOURCE}")
    Path("checks.py").write_text("def right(task, calls, state): return True\n")
    path = write(tmp_path / "orders.jsonl", lines())
    source = TaskSource(
        str(path),
        tools=("shop_tools:TOOLS",),
        check="checks:right",
        folder=str(tmp_path),
    )
    return RunFolder.create(TrainingConfig.create(scenario=str(source), name="run"))


def resume(run: RunFolder) -> None:
    Trainer(progress=end_at_warning).train(resume=run.path)


@pytest.mark.parametrize(
    ("old", "new"), [("{", '{"id": "other", '), ("{", "\n# a comment\n{")]
)
def test_a_tasks_file_that_changed_is_refused_and_a_comment_is_not_a_change(
    run: RunFolder, old: str, new: str
) -> None:
    path = Path("orders.jsonl")
    path.write_text(path.read_text().replace(old, new, 1))
    Path("prices.py").write_text("CHAIR = 21\n")
    if "#" in new:
        with pytest.raises(Warned):
            resume(run)
        return
    with pytest.raises(UsageError, match="is not as it was .* Put the file"):
        resume(run)


def test_a_tasks_file_that_is_gone_can_be_put_back(run: RunFolder) -> None:
    Path("orders.jsonl").unlink()
    with pytest.raises(UsageError) as refused:
        resume(run)
    assert "orders.jsonl" in str(refused.value)
    assert "Put it back to resume" in refused.value.__notes__[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [("prices.py", "The agent changed"), ("checks.py", "The check changed")],
)
def test_code_that_changed_is_said(run: RunFolder, name: str, said: str) -> None:
    Path(name).write_text(f"{Path(name).read_text()}\nMORE = 1\n")
    with pytest.raises(Warned, match=said):
        resume(run)


def test_an_agent_that_changed_is_tried_again(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("It takes number, not order.")

    monkeypatch.setattr("agentgym.train.plan.tried", refuse)
    Path("prices.py").write_text("CHAIR = 21\n")
    with pytest.raises(UsageError, match="It takes number"):
        Trainer().train(resume=run.path)
