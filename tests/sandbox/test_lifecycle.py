"""Zygotes die when they should, and are replaced when they should not have."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import agentgym
from agentgym.errors import SandboxError, SandboxUnavailableError
from agentgym.sandbox import (
    Argv,
    PythonScript,
    RunTests,
    Sandbox,
    SandboxConfig,
    open_sandbox,
)
from agentgym.sandbox import ladder as ladder_module
from agentgym.sandbox.commands import Job
from agentgym.sandbox.guest.box import remove_tree
from agentgym.sandbox.ladder import choose_rung, probe
from agentgym.sandbox.guest.settings import RUNGS
from agentgym.sandbox.runtime import readable_by_anyone, readable_python
from tests.sandbox.attacks import ISOLATING

SOURCE = Path(agentgym.__file__).parents[1]


def _descendants(pid: int) -> set[int]:
    """All processes below one, from ``/proc``."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {pid}
        found |= more


def _gone(pids: set[int], within_s: float) -> bool:
    """Whether all of these end in time (a zombie has ended)."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        left = [pid for pid in pids if Path(f"/proc/{pid}/exe").is_symlink()]
        alive = []
        for pid in left:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
            except OSError:
                continue
            if state.split()[0] != "Z":
                alive.append(pid)
        if not alive:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("rung", ISOLATING)
def test_everything_dies_with_the_host(rung: str) -> None:
    if probe(RUNGS[rung]):
        pytest.skip(f"the rung {rung} does not work here: {probe(RUNGS[rung])}")
    script = (
        "from agentgym.sandbox import *\n"
        f"s = open_sandbox(SandboxConfig(rung={rung!r}))\n"
        "s.run_sync({'a.py': ''}, PythonScript('a.py'))\n"
        "import threading\n"
        "a = {'a.py': 'import time; time.sleep(60)'}, PythonScript('a.py')\n"
        "f = threading.Thread(target=s.run_sync, args=a, kwargs={'timeout_s': 60})\n"
        "f.start()\n"
        "import time; time.sleep(0.3); print('ready', flush=True); f.join()\n"
    )
    folders = set(Path("/tmp").glob("agentgym-sandbox-*"))
    host = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    assert host.stdout is not None
    assert host.stdout.readline() == "ready\n"
    processes = _descendants(host.pid)
    assert len(processes) >= 2
    host.kill()
    host.communicate()
    assert _gone(processes, within_s=10)
    assert set(Path("/tmp").glob("agentgym-sandbox-*")) <= folders


def test_a_killed_zygote_is_replaced(best_sandbox: Sandbox) -> None:
    config = SandboxConfig(rung=best_sandbox.rung.name, concurrency=1)
    with open_sandbox(config) as sandbox:
        files = {"a.py": "import time; time.sleep(20)", "b.py": "print(2)"}
        assert sandbox.run_sync(files, PythonScript("b.py")).ok
        guest = sandbox._idle.pop()
        sandbox._idle.append(guest)
        running = sandbox._submit(Job.create(files, PythonScript("a.py"), timeout_s=20))
        time.sleep(0.2)
        os.kill(guest.process.pid, signal.SIGKILL)
        result = running.result(timeout=10)
        assert result.status == "sandbox_error"
        assert "died" in result.error
        assert sandbox.restarts == 1
        after = sandbox.run_sync(files, PythonScript("b.py"), collect=True)
        assert after.stdout == "2\n"
        sandbox.close()
        with pytest.raises(SandboxError, match="closed"):
            sandbox.run_sync(files, PythonScript("a.py"))


def test_an_idle_zygote_that_died_costs_nothing(best_sandbox: Sandbox) -> None:
    config = SandboxConfig(rung=best_sandbox.rung.name, cache_entries=0)
    with open_sandbox(config) as sandbox:
        files = {"a.py": "print(1)"}
        assert sandbox.run_sync(files, PythonScript("a.py")).ok
        guest = sandbox._idle.pop()
        family = {guest.process.pid, *_descendants(guest.process.pid)}
        os.kill(guest.process.pid, signal.SIGKILL)
        assert _gone(family, within_s=5)
        sandbox._idle.append(guest)
        assert sandbox.run_sync(files, PythonScript("a.py")).stdout == "1\n"
        assert sandbox.restarts == 1


def test_executions_run_at_the_same_time(best_sandbox: Sandbox) -> None:
    script = "import time as t; print(t.monotonic()); t.sleep(1); print(t.monotonic())"

    async def two() -> list[list[float]]:
        runs = (best_sandbox.run({"a.py": script}, PythonScript("a.py")) for _ in "ab")
        results = await asyncio.gather(*runs)
        return [[float(word) for word in result.stdout.split()] for result in results]

    asyncio.run(two())
    (begun, ended), (other_begun, other_ended) = asyncio.run(two())
    assert max(begun, other_begun) < min(ended, other_ended)


def test_closing_removes_processes_and_folders(best_sandbox: Sandbox) -> None:
    for rung in ISOLATING:
        if probe(RUNGS[rung]):
            continue
        before = set(Path("/tmp").glob("agentgym-sandbox-*"))
        processes = _descendants(os.getpid())
        with open_sandbox(SandboxConfig(rung=rung)) as sandbox:
            sandbox.run_sync({"a.py": ""}, PythonScript("a.py"))
            started = _descendants(os.getpid()) - processes
            assert started
        assert _gone(started, within_s=5)
        assert set(Path("/tmp").glob("agentgym-sandbox-*")) <= before


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_use_after_a_fork_is_refused(best_sandbox: Sandbox) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            best_sandbox.run_sync({"a.py": ""}, PythonScript("a.py"))
        except SandboxError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_refusal_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder_module, "probe", lambda rung: "it is broken")
    with pytest.raises(SandboxUnavailableError) as caught:
        choose_rung(SandboxConfig())
    for text in ("apt-get install bubblewrap", "--unsafe-local-exec", "it is broken"):
        assert text in str(caught.value)
    assert choose_rung(SandboxConfig(unsafe_local_exec=True)).name == "unsafe"


def test_unsafe_needs_the_flag() -> None:
    with pytest.raises(SandboxUnavailableError, match="--unsafe-local-exec"):
        choose_rung(SandboxConfig(rung="unsafe"))
    with pytest.raises(SandboxError, match="No sandbox rung is named 'jail'"):
        choose_rung(SandboxConfig(rung="jail"))


def test_missing_bubblewrap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install" in probe.__wrapped__(RUNGS["bubblewrap-user"])


_AS_USER = """\
import logging, os, sys
from agentgym.sandbox import *
secret = os.path.join(sys.argv[1], "own-secret")
open(secret, "w").write("hunter2")
attack = (
    "import os, sys, signal\\n"
    "def refused(call):\\n"
    "    try: call()\\n"
    "    except OSError: return True\\n"
    f"s = {secret!r}; parent = {os.getpid()}\\n"
    "print(refused(lambda: open(s).read()), refused(lambda: os.remove(s)),"
    " refused(lambda: os.kill(parent, 0)))\\n"
    "try: os.chmod(s, 0o777)\\n"
    "except OSError: pass\\n"
)
with open_sandbox() as s:
    r = s.run_sync({"a.py": attack}, PythonScript("a.py"))
    print(s.rung.name, r.stdout.strip(), oct(os.stat(secret).st_mode & 0o777), r.error)
    r = s.run_sync({"m.py": "x = 1", "test_m.py": "import m\\ndef test(): pass\\n"
        "def test_x():\\n    assert m.x == 1"}, RunTests())
    print(r.ok, r.passed)
"""


@pytest.mark.parametrize(
    ("path", "rung"),
    [(os.environ["PATH"], "bubblewrap-user"), ("/nowhere", "landlock-user")],
)
def test_without_root(path: str, rung: str, open_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; others test this anyway")
    if probe(RUNGS[rung]):
        pytest.skip(f"the rung {rung} does not work here")
    if not readable_by_anyone(SOURCE):
        pytest.skip("this checkout is not readable by other users")
    python = readable_python()
    run = subprocess.run(
        [str(python), "-c", _AS_USER, str(open_folder)],
        env={
            "PATH": path,
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_LIBRARY_PATH": str(python.parents[1] / "lib"),
        },
        user=61300,
        group=61300,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    expected = f"{rung} True True True 0o644 \nTrue 1\n"
    assert run.stdout == expected, run.stderr


def test_a_command_line_without_a_shell(best_sandbox: Sandbox) -> None:
    result = best_sandbox.run_sync({"a.py": "print(3)"}, Argv(("python", "a.py")))
    assert result.stdout == "3\n"
    missing = best_sandbox.run_sync({}, Argv(("no-such-program",)))
    assert (missing.exit_code, missing.status) == (127, "exited")
    assert "no-such-program" in missing.stderr
    assert best_sandbox.run_sync({}, RunTests()).exit_code == 5


def test_remove_tree(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    root = tmp_path / "root"
    folder = root
    for _ in range(10):
        folder = folder / ("d" * 250)
        folder.parent.mkdir(exist_ok=True)
    (root / "link").symlink_to(outside)
    (root / "file").write_text("x")
    (root / ("d" * 250)).chmod(0)
    remove_tree(str(root))
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept").exists()
