"""A reference that is not right gets a suggestion, and an import error its line."""

import sys
from pathlib import Path

import pytest

from agentgym.errors import UsageError
from agentgym.install import installer
from agentgym.integrations.agent_import import is_reference, load_agent
from agentgym.integrations.projects import named_in_project

DESK = """
def book(member: int) -> str:
    return "booked"

agent = [book]
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("hintdesk.py", "2-desk.py"):
        (tmp_path / name).write_text(DESK)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("hintdesk.agent", "Did you mean 'hintdesk:agent'?"),
        ("hintdesk.py", "Did you mean 'hintdesk:agent'?"),
        ("hintdesk", "Did you mean 'hintdesk:agent'?"),
        ("2-desk.py", "Did you mean '2-desk.py:agent'?"),
        ("desk.py:agent", "desk.py does not exist"),
        ("hintdesk:graph", "has no 'graph'. Did you mean 'hintdesk:agent'?"),
        ("hintdsk:agent", "Did you mean 'hintdesk'?"),
        ("supabase_xyz", "No agent of this project"),
    ],
)
def test_what_was_meant_is_suggested(desk: Path, text: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_agent(named_in_project(text))
    assert error in str(raised.value)
    sys.modules.pop("hintdesk", None)


def test_for_another_option_only_a_similar_name_is_suggested(desk: Path) -> None:
    for name, error in (
        ("boook", "no 'boook'. Did you mean 'hintdesk:book'? It has: book, agent."),
        ("TOOLS", "has no 'TOOLS'. It has: agent, book."),
    ):
        with pytest.raises(UsageError) as raised:
            load_agent(f"hintdesk:{name}", option="--tools-from")
        assert error in str(raised.value)
    sys.modules.pop("hintdesk", None)


@pytest.mark.parametrize("text", ["hintdesk.py:agent", "./hintdesk.py:agent"])
def test_an_agent_may_be_named_by_its_file(desk: Path, text: str) -> None:
    assert is_reference(text)
    assert named_in_project(text) == "hintdesk:agent"


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("x = 1\nraise RuntimeError('no database')\n", "line 2: RuntimeError"),
        ("import supabase_xyz\n", "line 1: No module named 'supabase_xyz'"),
        ("import supabase_xyz.a\n", f"{installer()} supabase_xyz"),
    ],
)
def test_an_import_error_has_its_file_and_line(
    desk: Path, source: str, error: str
) -> None:
    name = f"broken_{abs(hash(source))}"
    (desk / f"{name}.py").write_text(f"{source}agent = 1\n")
    with pytest.raises(UsageError, match=f"{name}.py, ") as raised:
        load_agent(f"{name}:agent")
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("surely_absent", f"often by: {installer()} surely_absent"),
        ("hintspace.absent", f"often by: {installer()} hintspace-absent"),
        ("hintdesk.absent", "The installed hintdesk is another version"),
    ],
)
def test_a_missing_package_is_named(desk: Path, module: str, hint: str) -> None:
    (desk / "hintspace").mkdir()
    (desk / "hintuser.py").write_text(f"import hintdesk\nimport {module}\n")
    sys.modules.pop("hintdesk", None)
    with pytest.raises(UsageError) as refused:
        load_agent("hintuser:agent")
    assert hint in str(refused.value)
