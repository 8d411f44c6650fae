"""Trajectory files: whole after every line, and honest about broken ones."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.core.trajectory import Trajectory
from agentgym.errors import TrajectoryFileError
from agentgym.rollout.trajectory_file import read_jsonl, scan_jsonl, write_jsonl


def make(rollout_id: str) -> Trajectory:
    return Trajectory(rollout_id=rollout_id, scenario="", task_id="t", answer="ä\ud83d")


def ids(trajectories: list[Trajectory]) -> list[str]:
    return [t.rollout_id for t in trajectories]


def test_what_is_written_is_read_again_and_files_grow(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.jsonl"
    assert write_jsonl(path, [make("a"), make("b")]) == 2
    assert write_jsonl(path, [make("c")]) == 1
    assert read_jsonl(path) == [make("a"), make("b"), make("c")]


def test_cut_line_is_named_and_the_whole_ones_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [make("a"), make("b"), make("c")])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TrajectoryFileError, match="line 3 was cut") as caught:
        read_jsonl(path)
    assert ids(caught.value.trajectories) == ["a", "b"]
    assert ids(read_jsonl(path, strict=False)) == ["a", "b"]


def test_broken_lines_in_the_middle_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [make("a")])
    with path.open("a") as file:
        file.write('nonsense\n{"rollout_id": "x"}\n\n[1]\n')
    write_jsonl(path, [make("b")])
    found, broken = scan_jsonl(path)
    assert ids(found) == ["a", "b"]
    assert [line[: len("line 0")] for line in broken] == ["line 2", "line 3", "line 5"]
    assert "scenario: Field required" in broken[1]


@pytest.mark.parametrize("length", [1, 40, 70_000])
def test_opening_takes_a_cut_last_line_away(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [make("a")])
    with path.open("a") as file:
        file.write("{" * length)
    write_jsonl(path, [make("b")])
    assert ids(read_jsonl(path)) == ["a", "b"]


def test_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [make("a")])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    write_jsonl(path, [make("b")])
    assert ids(read_jsonl(path)) == ["a", "b"]


def test_killed_writer_has_lost_nothing_that_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    script = f"""
import sys, time
from pathlib import Path
from agentgym.core.trajectory import Trajectory
from agentgym.rollout.trajectory_file import TrajectoryWriter
with TrajectoryWriter(Path({str(path)!r})) as writer:
    for name in "abc":
        writer.write(Trajectory(rollout_id=name, scenario="", task_id="t"))
    print("written", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert ids(read_jsonl(path)) == ["a", "b", "c"]
