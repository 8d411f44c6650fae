"""What a newcomer reads first: the commands, the indexes of pages and folders."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "agentgym"
READMES = [p for at in (SOURCE, SOURCE / "packs") for p in at.rglob("README.md")]
LARGE = 8
"""Modules from which on a folder needs a README."""


def test_ci_does_what_the_readme_says_before_it_tests() -> None:
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    train = re.search(r"uv run (agentgym train .+)", readme)
    assert train is not None
    assert ci.index(train[1]) < ci.index("agentgym eval") < ci.index("run pytest --dur")
    assert "--output" not in ci  # the run stays in the checkout
    match = re.search(r"grep -qF \"(.+?)\"", ci)
    assert match is not None
    assert match[1] in readme


def test_the_readme_says_which_python_before_anything_else() -> None:
    opening = (ROOT / "README.md").read_text().partition("## ")[0]
    project = (ROOT / "pyproject.toml").read_text()
    match = re.search(r'requires-python = ">=(.+)"', project)
    assert match is not None
    assert f"Python {match[1]} or newer" in opening
    assert "git clone" in opening


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_every_large_folder_has_a_readme() -> None:
    folders = [ROOT / name for name in ("tests", "benchmarks", "docs", "examples")]
    folders += [path for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    folders += [
        path
        for path in SOURCE.glob("*/**/")
        if len([*path.glob("*.py")]) > LARGE and path.name != "guest"
    ]
    missing = [str(path) for path in folders if not (path / "README.md").is_file()]
    assert missing == []


@pytest.mark.slow
def test_tensorboards_command_starts() -> None:
    command = Path(sys.executable).with_name("tensorboard")
    ended = subprocess.run([command, "--version"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


FOLDERS = sorted(path.parent for path in READMES)


@pytest.mark.parametrize(
    "folder", FOLDERS, ids=lambda folder: folder.relative_to(SOURCE).as_posix()
)
def test_the_files_that_a_readme_lists_are_there(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    below = {path.stem for path in folder.rglob("*")}
    for rows in re.findall(r"^\| file.*\n\|[-|]+\n((?:\|.*\n?)+)", text, re.MULTILINE):
        for row in rows.splitlines():
            listed = re.findall(r"`([\w/.]+)`", row.split("|")[1])
            gone = [n for n in listed if Path(n).stem not in below]
            assert [name for name in gone if not (folder / name).exists()] == []
