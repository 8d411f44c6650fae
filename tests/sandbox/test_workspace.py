"""The files of an episode whose commands do as they like."""

import pytest

from agentgym.errors import ToolError
from agentgym.sandbox import Sandbox
from agentgym.sandbox.workspace import Workspace


async def test_a_folder_that_becomes_a_file(best_sandbox: Sandbox) -> None:
    workspace = Workspace({"a/b": "1", "a/c": "1"}, sandbox=best_sandbox)
    script = "import shutil; shutil.rmtree('a'); open('a', 'w').write('now a file')"
    assert (await workspace.run(("python", "-c", script), 20)).ok
    assert workspace.files == {"a": "now a file"}


async def test_many_deep_files_leave_room_to_run(best_sandbox: Sandbox) -> None:
    workspace = Workspace({"kept": "1"}, sandbox=best_sandbox)
    deep = "/".join("d" * 95)
    script = (
        f"import os; deep = {deep!r}\n"
        "for n in range(70):\n"
        "    os.makedirs(f'c{n}/{deep}'); open(f'c{n}/{deep}/f', 'w').write('x')"
    )
    first = await workspace.run(("python", "-c", script), 20)
    assert first.ok, first
    assert "not kept" in first.stderr
    with pytest.raises(ToolError, match="too many or too large"):
        for number in range(100):
            workspace.write(f"w{number}/{deep}/f", "x")
    workspace.write("kept", "2")
    again = await workspace.run(("cat", "kept"), 20)
    assert (again.status, again.stdout) == ("exited", "2"), again


def test_no_edit_makes_a_file_that_is_no_unicode() -> None:
    workspace = Workspace({"a": "1"})
    for spoil in (
        lambda: workspace.replace("a", "1", "\ud800"),
        lambda: workspace.write("a", "\ud800"),
        lambda: workspace.write("\ud800", "1"),
    ):
        with pytest.raises(ToolError, match="not Unicode"):
            spoil()
    assert workspace.files == {"a": "1"}
