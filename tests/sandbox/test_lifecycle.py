"""Zygotes die when they should, and are replaced when they should not have."""

import asyncio
import contextlib
import errno
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import agentgym
from agentgym.errors import SandboxError, SandboxUnavailableError
from agentgym.plugins.collect.toolbox import Toolbox
from agentgym.sandbox import (
    Argv,
    PythonScript,
    RunTests,
    Sandbox,
    SandboxConfig,
    launch,
)
from agentgym.sandbox import ladder as ladder_module
from agentgym.sandbox.guest.box import remove_tree
from agentgym.sandbox.guest.settings import RUNGS, Rung
from agentgym.sandbox.ladder import choose_rung, probe
from agentgym.sandbox.launch import (
    readable_by_anyone,
    readable_python,
    reserve_identity,
)
from tests.sandbox import attacks, processes
from tests.sandbox.conftest import Attack

SOURCE = Path(agentgym.__file__).parents[1]
SLEEPER = {"a.py": attacks.SLEEPER, "own": "mine", "b.py": "print(2)"}


@pytest.mark.slow
def test_everything_dies_with_the_host(rung: str, open_folder: Path) -> None:
    script = (
        "from agentgym.sandbox import *\n"
        f"s = Sandbox(SandboxConfig(rung={rung!r}))\n"
        f"s.run_sync({SLEEPER!r}, PythonScript('b.py'))\n"
        f"s.run_sync({SLEEPER!r}, PythonScript('a.py'), timeout_s=60)\n"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(open_folder)}
    )
    processes.wait_for_sleepers(below=host.pid)
    family = processes.descendants(host.pid)
    assert len(family) >= 2
    assert any(open_folder.iterdir()) == RUNGS[rung].landlock
    host.kill()
    host.wait()
    processes.wait_until_gone(family)
    assert not any(open_folder.iterdir())


@pytest.mark.slow
def test_a_killed_zygote_is_replaced(best_rung: str) -> None:
    before = processes.children(os.getpid())
    with (
        Sandbox(SandboxConfig(rung=best_rung, concurrency=1)) as sandbox,
        ThreadPoolExecutor() as pool,
    ):
        assert sandbox.run_sync(SLEEPER, PythonScript("b.py")).ok
        (zygote,) = processes.children(os.getpid()) - before
        command = PythonScript("a.py")
        running = pool.submit(sandbox.run_sync, SLEEPER, command, timeout_s=60)
        processes.wait_for_sleepers(below=zygote)
        os.kill(zygote, signal.SIGKILL)
        result = running.result()
        assert result.status == "sandbox_error"
        assert "died" in result.error
        assert sandbox.restarts == 1
        after = sandbox.run_sync(SLEEPER, PythonScript("b.py"), collect=True)
        assert after.stdout == "2\n"


@pytest.mark.slow
def test_a_zygote_that_cannot_set_up_is_replaced(rung: str) -> None:
    before = processes.descendants(os.getpid())
    config = SandboxConfig(rung=rung, concurrency=1, cache_bytes=0)
    with Sandbox(config) as sandbox:
        assert sandbox.run_sync(SLEEPER, PythonScript("b.py")).ok
        for pid in processes.descendants(os.getpid()) - before:
            owner = processes.user_of(pid) if os.geteuid() == 0 else None
            limit = ["prlimit", f"--pid={pid}", "--fsize=0:0"]
            subprocess.run(limit, user=owner, group=owner, check=True)
        for _ in range(2):
            result = sandbox.run_sync(SLEEPER, PythonScript("b.py"))
            assert result.stdout == "2\n", result
        assert sandbox.restarts == 1


@pytest.mark.slow
def test_a_zygote_that_is_told_to_end_again_and_again_removes_its_folder(
    rung: str, open_folder: Path
) -> None:
    if reason := probe(RUNGS[rung]):
        pytest.skip(f"the rung {rung} does not work here: {reason}")
    script = (
        "from agentgym.sandbox import *\n"
        f"config = SandboxConfig(rung={rung!r}, concurrency=1, cache_bytes=0)\n"
        f"Sandbox(config).run_sync({SLEEPER!r}, PythonScript('a.py'))\n"
    )
    argv = [sys.executable, "-c", script]
    host = subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(open_folder)})
    processes.wait_for_sleepers(below=host.pid)
    zygotes = processes.children(host.pid)
    host.kill()
    while any(map(processes.is_there, zygotes)):
        for zygote in [*zygotes] * 1000:
            with contextlib.suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGTERM)
    host.wait()
    assert not any(open_folder.iterdir())


def test_user_ids_of_others_are_left_alone(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := probe(RUNGS["landlock"]):
        pytest.skip(f"the rung landlock does not work here: {reason}")
    somebodys, lock = reserve_identity()
    has_account, other_lock = reserve_identity()
    account = pwd.getpwuid(os.getuid())
    known = {has_account: account}
    monkeypatch.setattr(launch.pwd, "getpwuid", known.__getitem__)
    with subprocess.Popen(
        ["sleep", "600"], user=somebodys, group=somebodys, extra_groups=[]
    ) as victim:
        lock.close()
        other_lock.close()
        config = SandboxConfig(rung="landlock", cache_bytes=0)
        with Sandbox(config) as sandbox:
            result = attack(sandbox, "import os; print(os.getuid())")
        alive = victim.poll() is None
        victim.kill()
    assert alive
    assert int(result.stdout) not in (somebodys, has_account)


@pytest.mark.slow
def test_an_idle_zygote_that_died_costs_nothing(best_rung: str) -> None:
    before = processes.children(os.getpid())
    with Sandbox(SandboxConfig(rung=best_rung, cache_bytes=0)) as sandbox:
        assert sandbox.run_sync(SLEEPER, PythonScript("b.py")).ok
        (zygote,) = processes.children(os.getpid()) - before
        family = {zygote, *processes.descendants(zygote)}
        os.kill(zygote, signal.SIGKILL)
        processes.wait_until_gone(family)
        assert sandbox.run_sync(SLEEPER, PythonScript("b.py")).stdout == "2\n"
        assert sandbox.restarts == 1


async def test_executions_run_at_the_same_time(best_sandbox: Sandbox) -> None:
    """Neither ends before the other has begun."""
    command = PythonScript("a.py")
    running = asyncio.gather(
        *(best_sandbox.run(SLEEPER, command, timeout_s=60) for _ in "ab")
    )
    sleepers = await asyncio.to_thread(processes.wait_for_sleepers, os.getpid(), 2)
    for pid in sleepers:
        os.kill(pid, signal.SIGUSR1)
    assert [result.stdout for result in await running] == ["mine\n", "mine\n"]


def test_closing_removes_processes_and_folders(
    rung: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    before = processes.descendants(os.getpid())
    with Sandbox(SandboxConfig(rung=rung)) as sandbox:
        assert sandbox.run_sync({"a.py": ""}, PythonScript("a.py")).ok
        started = processes.descendants(os.getpid()) - before
        assert started
        assert any(open_folder.iterdir()) == RUNGS[rung].landlock
    processes.wait_until_gone(started)
    assert not any(open_folder.iterdir())


async def test_what_is_cancelled_ends_at_once(rung: str) -> None:
    config = SandboxConfig(rung=rung, concurrency=1, cache_bytes=0)
    before = processes.descendants(os.getpid())
    with Sandbox(config) as sandbox:
        command = PythonScript("a.py")
        running = asyncio.create_task(sandbox.run(SLEEPER, command, timeout_s=3600))
        await asyncio.to_thread(processes.wait_for_sleepers, os.getpid())
        family = processes.descendants(os.getpid()) - before
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.to_thread(processes.wait_until_gone, family)
        assert (await sandbox.run(SLEEPER, PythonScript("b.py"))).stdout == "2\n"


@pytest.mark.slow
async def test_what_waits_when_it_is_closed_is_told(best_rung: str) -> None:
    config = SandboxConfig(rung=best_rung, concurrency=1, cache_bytes=0)
    with Sandbox(config) as sandbox:
        long = sandbox.run(SLEEPER, PythonScript("a.py"), timeout_s=2)
        running = asyncio.create_task(long)
        await asyncio.to_thread(processes.wait_for_sleepers, os.getpid())
        waiting = asyncio.create_task(sandbox.run(SLEEPER, PythonScript("b.py")))
        later = asyncio.create_task(asyncio.to_thread(sandbox.close))
        with pytest.raises(SandboxError, match="closed"):
            await waiting
        assert (await running).status == "timed_out"
        await later


@pytest.mark.slow
def test_an_interrupt_ends_what_runs(rung: str) -> None:
    config = f"SandboxConfig(rung={rung!r}, concurrency=2)"
    script = (
        "from agentgym.sandbox import *\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def run(_):\n"
        f"    return s.run_sync({SLEEPER!r}, PythonScript('a.py'), timeout_s=3600)\n"
        f"with ThreadPoolExecutor() as pool, Sandbox({config}) as s:\n"
        "    other = pool.submit(run, 0)\n"
        "    try:\n        run(1)\n"
        "    finally:\n        print('interrupted', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as host:
        processes.wait_for_sleepers(below=host.pid, count=2)
        family = processes.descendants(host.pid)
        host.send_signal(signal.SIGINT)
        out, errors = host.communicate(timeout=120)
        assert out == "interrupted\n"
        assert errors.rstrip().endswith("KeyboardInterrupt")
    processes.wait_until_gone(family)


@pytest.mark.slow
def test_a_full_disk_is_no_matter_to_what_needs_none(
    best_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert best_sandbox.run_sync(SLEEPER, PythonScript("b.py")).ok
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert best_sandbox.run_sync(SLEEPER, PythonScript("b.py")).ok
    monkeypatch.setattr(os, "pipe", full)
    with pytest.raises(SandboxError, match="No space left"):
        best_sandbox.run_sync(SLEEPER, PythonScript("b.py"))
    monkeypatch.undo()
    assert best_sandbox.run_sync(SLEEPER, PythonScript("b.py")).ok


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_use_after_a_fork_is_refused(best_sandbox: Sandbox) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            best_sandbox.run_sync({"a.py": ""}, PythonScript("a.py"))
        except SandboxError:
            best_sandbox.close()
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert best_sandbox.run_sync({"a.py": ""}, PythonScript("a.py")).ok


def test_refusal_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder_module, "probe", lambda rung: "it is broken")
    with pytest.raises(SandboxUnavailableError) as caught:
        choose_rung(SandboxConfig())
    for text in ("apt-get install bubblewrap", "--unsafe-local-exec", "it is broken"):
        assert text in str(caught.value)
    assert choose_rung(SandboxConfig(unsafe_local_exec=True)).name == "unsafe"


def test_a_rung_without_subprocesses_is_refused_to_shells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def works(rung: Rung) -> str:
        return "" if rung.name == "landlock-user" else "it is broken"

    monkeypatch.setattr(ladder_module, "probe", works)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert choose_rung(SandboxConfig()).name == "landlock-user"
    for name in (None, "landlock-user"):
        config = SandboxConfig(rung=name, subprocesses=True)
        with pytest.raises(SandboxUnavailableError) as caught:
            choose_rung(config)
        for text in ("landlock-user", "cannot start others", "Install bubblewrap"):
            assert text in str(caught.value)
    with pytest.raises(SandboxUnavailableError, match="cannot start others"):
        Toolbox({"bash": {}}).open()


def test_unsafe_needs_the_flag() -> None:
    with pytest.raises(SandboxUnavailableError, match="--unsafe-local-exec"):
        choose_rung(SandboxConfig(rung="unsafe"))
    with pytest.raises(SandboxError, match="No sandbox rung is named 'jail'"):
        choose_rung(SandboxConfig(rung="jail"))


def test_missing_bubblewrap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install" in probe.__wrapped__(RUNGS["bubblewrap-user"])


def test_an_interpreter_that_bubblewrap_would_hide_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    (place / "bwrap").write_text("")
    (place / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr(
        ladder_module, "own_python", lambda: Path("/tmp/venv/bin/python3")
    )
    assert "/tmp/venv is below /tmp" in probe.__wrapped__(RUNGS["bubblewrap-user"])
    shown = ladder_module.described(RUNGS["landlock"])
    assert "bubblewrap cannot be used: the Python in /tmp/venv is below /tmp" in shown
    assert "cannot" not in ladder_module.described(RUNGS["bubblewrap"])
    monkeypatch.undo()
    assert ladder_module.described(RUNGS["landlock"]) == RUNGS["landlock"].in_words


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
with Sandbox() as s:
    r = s.run_sync({"a.py": attack}, PythonScript("a.py"))
    print(s.rung.name, r.stdout.strip(), oct(os.stat(secret).st_mode & 0o777), r.error)
    r = s.run_sync({"m.py": "x = 1", "test_m.py": "import m\\ndef test(): pass\\n"
        "def test_x():\\n    assert m.x == 1"}, RunTests())
    print(r.ok, r.passed)
"""


_WITHOUT_PACKAGES = """\
import sys
sys.path.insert(0, sys.argv[1])
from agentgym.sandbox import *
print(PythonScript("a.py") is not None)
"""


@pytest.mark.slow
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
    expected = f"{rung} True True True 0o644 \nTrue 2\n"
    assert run.stdout == expected, run.stderr


def test_it_needs_no_installed_packages() -> None:
    # A process of its own: this one has the packages.
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _WITHOUT_PACKAGES, str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "True\n", run.stderr


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
    for name in ("removed-1", "removed-2"):
        (outside.parent / name / "kept").mkdir(parents=True)
    assert not remove_tree(str(root), most=2)
    assert remove_tree(str(root))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["outside", "removed-1", "removed-2"]
    assert (outside / "kept").exists()
