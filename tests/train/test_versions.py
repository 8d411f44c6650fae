"""Versions of saved agents: numbered once, whole or not there, never lost."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym import TrainedAgent
from agentgym.errors import NotFoundError, UsageError
from agentgym.train.versions import Versions, saved_names
from tests.train.agents import make_agent, saved_agent

SAVE = """
import sys
from pathlib import Path
from agentgym import TrainedAgent
from agentgym.train.export import keep

agent = TrainedAgent.load(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    print(keep(agent, "coding").name, flush=True)
"""


def start(agent: TrainedAgent) -> subprocess.Popen[str]:
    """Start a process that keeps ``agent`` ten times, once it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-c", SAVE, str(agent.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_each_save_is_a_version_and_a_name_alone_means_the_default(
    tmp_path: Path,
) -> None:
    first = saved_agent(tmp_path / "a", "coding", 0.5, 0.8)
    second = saved_agent(tmp_path / "b", "coding", 0.5, 0.6)
    assert (first.name, second.name) == ("coding@1", "coding@2")
    assert TrainedAgent.load("coding@1") == first
    assert TrainedAgent.load("coding") == second
    assert (first.is_default, second.is_default) == (False, True)
    assert first.make_default() == "coding@2"
    assert TrainedAgent.load("coding") == first
    assert TrainedAgent.load(second.path).name == "coding@2"
    assert TrainedAgent.load(tmp_path / "b").name == "b"


@pytest.mark.slow
def test_processes_that_save_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    levels = (0.6, 0.9, 0.7)
    agents = [make_agent(tmp_path / str(level), 0.5, level) for level in levels]
    processes = [start(agent) for agent in agents]
    for process in processes:
        go(process)
    said = [process.communicate()[0].split() for process in processes]
    names = {name for each in said for name in each}
    assert names == {f"coding@{number}" for number in range(1, 31)}
    for agent, each in zip(agents, said, strict=True):
        for name in each:
            assert TrainedAgent.load(name).metrics == agent.metrics
    assert TrainedAgent.load("coding").metrics == agents[1].metrics


@pytest.mark.slow
def test_a_kill_while_saving_leaves_no_half_version(
    tmp_path: Path, own_home: Path
) -> None:
    agent = make_agent(tmp_path / "made", 0.5, 0.9)
    for number in range(300):  # so that saving takes a while
        (agent.model_path / f"{number}.txt").write_text("x" * 1000)
    whole = {path.name for path in agent.model_path.iterdir()}
    unfinished = own_home / "agents" / "coding" / ".saving"
    seen = 0
    for _ in range(5):
        with start(agent) as process:
            go(process)
            until = time.monotonic() + 20
            while not unfinished.exists() and time.monotonic() < until:
                if process.poll() is not None:
                    break
            process.send_signal(signal.SIGKILL)
        seen += unfinished.exists()
        for version in Versions("coding").all():
            found = TrainedAgent.load(str(version))
            assert {path.name for path in found.model_path.iterdir()} == whole
        if Versions("coding").all():
            assert TrainedAgent.load("coding")
    assert seen
    before = len(Versions("coding").all())
    assert agent.save("coding").name == str(before + 1)
    assert not unfinished.exists()


def test_a_version_that_fails_to_be_copied_is_not_there(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(tmp_path / "made", 0.5, 0.9)
    agent.save("coding")
    monkeypatch.setattr("shutil.copy2", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        agent.save("coding")
    left = sorted(path.name for path in (own_home / "agents" / "coding").iterdir())
    assert left == [".lock", "1", "default"]


def test_weights_are_linked_and_the_rest_is_copied(tmp_path: Path) -> None:
    made = make_agent(tmp_path / "made", 0.5, 0.9)
    saved = TrainedAgent.load(made.save("coding"))
    for name, links in (("model.safetensors", 2), ("config.json", 1)):
        assert (saved.model_path / name).stat().st_nlink == links
    assert (saved.path / "agent.json").stat().st_nlink == 1


def test_weights_are_copied_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_agent(tmp_path / "made", 0.5, 0.9)
    monkeypatch.setattr(os, "link", refuse(errno.EXDEV))
    saved = TrainedAgent.load(made.save("coding"))
    weights = saved.model_path / "model.safetensors"
    assert (weights.read_bytes(), weights.stat().st_nlink) == (b"weights", 1)


@pytest.mark.parametrize("text", ["3", "one"])
def test_a_default_that_is_gone_says_what_to_do(
    tmp_path: Path, own_home: Path, text: str
) -> None:
    first = saved_agent(tmp_path / "a", "coding", 0.5, 0.8)
    default = own_home / "agents" / "coding" / "default"
    default.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="coding has no default: .* use coding@1`"):
        TrainedAgent.load("coding")
    assert TrainedAgent.load("coding@1") == first
    assert first.make_default() is None
    assert TrainedAgent.load("coding") == first


def test_the_number_of_a_default_that_is_gone_is_not_given_again(
    tmp_path: Path, own_home: Path
) -> None:
    agent = make_agent(tmp_path / "a", 0.5, 0.8)
    for _ in range(3):
        gone = agent.save("coding")
    gone.rename(tmp_path / "gone")
    assert agent.save("coding").name == "4"


def test_a_folder_that_is_not_saved_is_no_default(tmp_path: Path) -> None:
    agent = make_agent(tmp_path / "a", 0.5, 0.8)
    with pytest.raises(UsageError, match="not saved under a name: save it first"):
        agent.make_default()
    assert not agent.is_default


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "coding@2", "a b"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    agent = make_agent(tmp_path / "a", 0.5, 0.8)
    with pytest.raises(UsageError, match="is not a name for an agent: use letters"):
        agent.save(name)
    assert saved_names() == []


@pytest.mark.parametrize("name", ["customer_support_v1.2", "größe-3", "3", "_"])
def test_a_name_may_have_letters_of_any_language(tmp_path: Path, name: str) -> None:
    saved = saved_agent(tmp_path / "a", name, 0.5, 0.8)
    assert TrainedAgent.load(name) == TrainedAgent.load(f"{name}@1") == saved
    assert saved_names() == [name]


def test_a_home_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(tmp_path / "a", 0.5, 0.8)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="is not writable; set AGENTGYM_HOME"):
        agent.save("coding")


def test_a_name_with_a_version_is_never_a_way_out_of_the_home(
    tmp_path: Path, own_home: Path
) -> None:
    make_agent(own_home / "secret" / "1", 0.5, 0.8)
    (own_home / "agents").mkdir()
    for name in ("../secret", "../secret@1", "secret"):
        with pytest.raises(NotFoundError, match="No trained agent is named"):
            TrainedAgent.load(name)


def refuse(number: int) -> Callable[..., None]:
    """Return a function that fails as the operating system does."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail
