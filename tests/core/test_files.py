"""Scratch folders: nothing stays behind, whoever was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.core.files import scratch_folder

HOLD = """
from agentgym.core.files import scratch_folder
with scratch_folder("test") as folder:
    (folder / "file").write_text("")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty folder that is TMPDIR."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def hold() -> tuple["subprocess.Popen[str]", Path]:
    """Start a process that holds a folder which looks old."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    os.utime(folder, (0, 0))
    return process, folder


def test_it_is_removed_whatever_happens(place: Path) -> None:
    with pytest.raises(ZeroDivisionError), scratch_folder("test") as folder:
        (folder / "file").write_text("")
        raise ZeroDivisionError
    assert not list(place.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next(place: Path) -> None:
    process, left = hold()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert left.is_dir()
    with scratch_folder("other"):
        assert left.is_dir()
    with scratch_folder("test"):
        assert not left.exists()


def test_what_a_living_process_holds_stays(place: Path) -> None:
    process, held = hold()
    with scratch_folder("test"):
        assert held.is_dir()
    process.communicate("go on\n")
    assert not list(place.iterdir())


def test_a_folder_that_is_new_or_no_folder_stays(place: Path) -> None:
    (place / "agentgym-test-new").mkdir()
    (place / "agentgym-test-file").write_text("")
    (place / "agentgym-test-link").symlink_to(place)
    with scratch_folder("test"):
        pass
    assert len(list(place.iterdir())) == 3
