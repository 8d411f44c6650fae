"""Files and scratch folders: nothing stays behind of a process that was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.core.files import new_folder, scratch_folder, write_atomically, write_json

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


SAVE = """
import os, signal, sys
from pathlib import Path
from agentgym.core import files
files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
path = Path(sys.argv[1])
if sys.argv[2:] == ["file"]:
    files.write_json(path, {"new": 1})
with files.new_folder(path) as folder:
    (folder / "weights").write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_kill_during_a_save_left_is_removed_by_the_next(
    place: Path, what: str
) -> None:
    path = place / "saved.json"
    subprocess.run([sys.executable, "-c", SAVE, str(path), what], check=False)
    [left] = place.iterdir()
    os.utime(left, (0, 0))
    (place / ".other.json.1.tmp").write_text("of another file")
    os.utime(place / ".other.json.1.tmp", (0, 0))
    if what == "file":
        write_json(path, {"new": 2})
    else:
        with new_folder(path) as one, new_folder(path) as two:
            os.utime(one, (0, 0))
            with new_folder(path):
                assert one.is_dir(), "a save that goes on was disturbed"
                assert two.is_dir()
    names = sorted(found.name for found in place.iterdir())
    assert names == [".other.json.1.tmp", "saved.json"]


def test_modes_of_saved_files(place: Path) -> None:
    old = os.umask(0o022)
    try:
        write_json(place / "run.json", 1)
        write_atomically(place / "named", "by the user", private=False)
        assert modes(place) == {"run.json": 0o600, "named": 0o644}
        (place / "run.json").chmod(0o664)
        write_json(place / "run.json", 2)
        assert modes(place)["run.json"] == 0o664, "who shares it did so on purpose"
    finally:
        os.umask(old)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
