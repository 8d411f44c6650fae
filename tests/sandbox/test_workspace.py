"""The files of an episode whose commands do as they like."""

import pytest

from agentgym.errors import ToolError
from agentgym.sandbox import Sandbox, SandboxConfig
from agentgym.sandbox.workspace import Workspace

_TURN = """
import os
os.remove("a"); os.mkdir("a")
for n in range(1200): open(f"a/{n}", "w").write("x")
"""


@pytest.mark.slow
async def test_a_file_that_becomes_a_crowded_folder(best_sandbox: Sandbox) -> None:
    workspace = Workspace({"a": "1", "kept": "2"}, sandbox=best_sandbox)
    first = await workspace.run(("python", "-c", _TURN), 20)
    assert first.ok, first
    assert "a" not in workspace.files
    assert workspace.files["kept"] == "2"
    assert workspace.files["a/0"] == "x"
    second = await workspace.run(("python", "-c", "print(open('kept').read())"), 20)
    assert (second.status, second.stdout) == ("exited", "2\n"), second


async def test_a_folder_that_becomes_a_file(best_sandbox: Sandbox) -> None:
    workspace = Workspace({"a/b": "1", "a/c": "1"}, sandbox=best_sandbox)
    script = "import shutil; shutil.rmtree('a'); open('a', 'w').write('now a file')"
    assert (await workspace.run(("python", "-c", script), 20)).ok
    assert workspace.files == {"a": "now a file"}


async def test_a_folder_that_becomes_a_link_elsewhere(best_sandbox: Sandbox) -> None:
    workspace = Workspace({"a/b": "1"}, sandbox=best_sandbox)
    script = "import os; os.rename('a', 'c'); os.symlink('c', 'a')"
    assert (await workspace.run(("python", "-c", script), 20)).ok
    assert workspace.files == {"c/b": "1"}


async def test_a_deep_file_costs_only_itself(best_sandbox: Sandbox) -> None:
    workspace = Workspace({"kept": "1"}, sandbox=best_sandbox)
    script = (
        "import os\n"
        "for _ in range(1500): os.mkdir('d'); os.chdir('d')\n"
        "open('f', 'w').write('x')"
    )
    assert (await workspace.run(("python", "-c", script), 20)).ok
    assert (await workspace.run(("python", "-c", "pass"), 20)).ok
    assert workspace.files == {"kept": "1"}


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


@pytest.mark.slow
async def test_many_large_files_leave_room_to_run(best_rung: str) -> None:
    large = "\N{LATIN SMALL LETTER E WITH ACUTE}" * 200_000
    config = SandboxConfig(rung=best_rung, cache_bytes=0)
    with Sandbox(config) as sandbox:
        workspace = Workspace({}, max_characters=len(large), sandbox=sandbox)
        with pytest.raises(ToolError, match="too large"):
            for number in range(100):
                workspace.write(f"{number}", large)
        workspace.write("small", "x" * len(large))
        with pytest.raises(ToolError, match="too large"):
            workspace.replace("small", workspace.files["small"], large)
        fill = "head -c 900000 /dev/zero | tr '\\0' a > more"
        filled = await workspace.run(("bash", "-c", fill), 20)
        assert filled.ok, filled
        assert "not kept" in filled.stderr
        workspace.write("0", "y")
        assert (await workspace.run(("cat", "0"), 20)).stdout == "y"


def test_a_name_that_no_disk_takes_is_refused() -> None:
    with pytest.raises(ToolError, match="255 bytes"):
        Workspace({}).write("\N{ROCKET}" * 64, "x")


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
