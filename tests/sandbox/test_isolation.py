"""Nothing gets out: each attack on the best rung here, in the sweep on every rung."""

import os
import signal
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentgym.sandbox import PythonScript, Sandbox
from tests.sandbox import attacks, processes
from tests.sandbox.conftest import ISOLATING, Attack, opened


def _all_refused(text: str, attempts: int) -> bool:
    """Whether each of so many attempts was made, and refused."""
    lines = text.splitlines()
    return len(lines) == attempts and all("refused" in line for line in lines)


def test_attacks_succeed_without_isolation(
    unsafe_sandbox: Sandbox,
    attack: Attack,
    open_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (open_folder / "victim").write_text("x")
    (open_folder / "secret").write_text("x")
    for script in (attacks.NETWORK, attacks.WRITE_HOST, attacks.READ_HOST):
        assert "REACHED" in attack(unsafe_sandbox, script, str(open_folder)).stdout
    assert (open_folder / "written").exists()


@pytest.mark.parametrize("rung", ISOLATING)
def test_every_rung_holds(rung: str, attack: Attack) -> None:
    with opened(rung, warm=False) as sandbox:
        result = attack(sandbox, attacks.NETWORK + attacks.SYSTEM_CALLS)
    assert _all_refused(result.stdout, 7 + 29), result


def test_event_loop_still_works(sandbox: Sandbox, attack: Attack) -> None:
    script = "import asyncio\nasync def f():\n    return 5\nprint(asyncio.run(f()))"
    result = attack(sandbox, script)
    assert result.stdout == "5\n", result


@pytest.mark.slow
def test_host_writes(sandbox: Sandbox, attack: Attack, open_folder: Path) -> None:
    victim = open_folder / "victim"
    victim.write_text("x")
    result = attack(sandbox, attacks.WRITE_HOST, str(open_folder))
    assert _all_refused(result.stdout, 6), result
    assert list(open_folder.iterdir()) == [victim]
    assert victim.read_text() == "x"


def test_system_writes(sandbox: Sandbox, attack: Attack) -> None:
    result = attack(sandbox, attacks.WRITE_SYSTEM)
    assert _all_refused(result.stdout, 10), result


def test_host_reads(sandbox: Sandbox, attack: Attack, open_folder: Path) -> None:
    (open_folder / "secret").write_text("hunter2")
    result = attack(sandbox, attacks.READ_HOST, str(open_folder))
    assert _all_refused(result.stdout, 4), result


@pytest.mark.parametrize("rung", ISOLATING)
def test_attributes_of_host_files(rung: str, attack: Attack, open_folder: Path) -> None:
    secret = open_folder / "secret"
    secret.write_text("x")
    secret.chmod(0o666)
    try:
        os.setxattr(secret, "user.note", b"hunter2")
    except OSError:
        pytest.skip("files have no extended attributes here")
    with opened(rung) as sandbox:
        result = attack(sandbox, attacks.ATTRIBUTES, str(open_folder))
    assert _all_refused(result.stdout, 8), result
    assert os.listxattr(secret) == ["user.note"]


def test_environment_does_not_leak(
    sandbox: Sandbox, attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    result = attack(sandbox, attacks.ENVIRONMENT)
    assert result.stdout == "refused\n", result


def test_privileges(sandbox: Sandbox, attack: Attack) -> None:
    lines = attack(sandbox, attacks.PRIVILEGES).stdout.splitlines()
    assert ["refused" in line for line in lines] == [True, True, False, True], lines


def test_only_the_standard_descriptors_are_open(
    sandbox: Sandbox, attack: Attack
) -> None:
    result = attack(sandbox, attacks.DESCRIPTORS)
    assert result.stdout == "[0, 1, 2, 3]\n", result


def test_endless_loop(sandbox: Sandbox, attack: Attack) -> None:
    result = attack(sandbox, "print('begun')\nwhile True: pass", timeout_s=0.3)
    assert result.timed_out
    assert result.stdout == "begun\n"
    assert attack(sandbox, "print(1)").stdout == "1\n"


@pytest.mark.slow
def test_fork_bomb(sandbox: Sandbox, attack: Attack) -> None:
    result = attack(sandbox, attacks.FORK_BOMB, timeout_s=0.3)
    assert result.timed_out or "refused" in result.stdout, result
    assert attack(sandbox, "print(1)").stdout == "1\n"


def test_number_of_processes(sandbox: Sandbox, attack: Attack) -> None:
    result = attack(sandbox, attacks.COUNT_FORKS)
    assert int(result.stdout) <= sandbox.config.limits.processes, result
    assert sandbox.rung.strict == (int(result.stdout) == 0)


def test_memory_hog(sandbox: Sandbox, attack: Attack) -> None:
    result = attack(sandbox, attacks.MEMORY_HOG)
    assert result.stdout.startswith("stopped at "), result
    assert int(result.stdout.split()[-1]) <= sandbox.config.limits.memory_mb


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [attacks.MEMORY_CROWD, attacks.MEMORY_AMID_ORPHANS],
    ids=["quiet", "amid-orphans"],
)
def test_memory_of_all_processes(sandbox: Sandbox, attack: Attack, script: str) -> None:
    result = attack(sandbox, script, timeout_s=20)
    if sandbox.rung.strict:
        assert "refused" in result.stdout, result
    else:
        assert (result.status, result.signal) == ("killed", 9), result
        assert "total_memory_mb" in result.error
    assert attack(sandbox, "print(1)").stdout == "1\n"


def test_file_size(sandbox: Sandbox, attack: Attack) -> None:
    script = "with open('big', 'wb') as f:\n  while True: f.write(bytes(1 << 20))"
    result = attack(sandbox, script)
    assert result.signal == signal.SIGXFSZ or "OSError" in result.stderr, result


def test_daemon(sandbox: Sandbox, attack: Attack) -> None:
    marker = f"600.{uuid.uuid4().int}"
    result = attack(sandbox, attacks.DAEMON, marker)
    assert ("refused" in result.stdout) == sandbox.rung.strict, result
    assert processes.with_argument(marker) == []


def test_output_flood(sandbox: Sandbox, attack: Attack) -> None:
    script = "while True: print('x' * 5000)"
    result = attack(sandbox, script, timeout_s=0.4)
    assert result.timed_out
    assert result.truncated
    assert len(result.stdout) == sandbox.config.limits.output_bytes
    assert "16 MB" in result.error


def test_cannot_kill_others(sandbox: Sandbox, attack: Attack) -> None:
    before = sandbox.restarts
    result = attack(sandbox, attacks.MASSACRE)
    assert result.stdout.endswith("still here\n"), result
    assert attack(sandbox, "print(1)").stdout == "1\n"
    assert sandbox.restarts == before


@pytest.mark.parametrize("rung", ISOLATING)
def test_cannot_spoil_the_zygote(rung: str, attack: Attack) -> None:
    with opened(rung) as sandbox:
        result = attack(sandbox, attacks.ZYGOTE)
        assert result.ok, result
        assert result.stdout
        assert "REACHED" not in result.stdout
        for _ in range(2):
            after = attack(sandbox, "open('f', 'w').write('1'); print(1)")
            assert after.stdout == "1\n", after
        assert sandbox.restarts == 0


def test_nothing_is_left_for_the_next_execution(
    sandbox: Sandbox, attack: Attack
) -> None:
    write = (
        "import os, tempfile\n"
        "open('left', 'w').close()\n"
        "open(os.path.join(tempfile.gettempdir(), 'left'), 'w').close()\n"
        "os.makedirs('a/b'); os.chmod('a', 0)\n"
        "try: open('/dev/shm/left', 'w').close()\n"
        "except OSError: pass\n"
        "import json; json.dumps = None\n"
    )
    look = (
        "import os, tempfile, json\n"
        "shm = os.listdir('/dev/shm') if os.access('/dev/shm', os.R_OK) else []\n"
        "shm = [name for name in shm if name == 'left']\n"
        "print(os.listdir('.'), os.listdir(tempfile.gettempdir()), shm, json.dumps(1))"
    )
    if sandbox.rung.landlock:
        look = look.replace("os.listdir('/dev/shm')", "[]")
    assert attack(sandbox, write).ok
    assert attack(sandbox, look).stdout == "['attack.py'] [] [] 1\n"


def test_running_executions_do_not_see_each_other(
    sandbox: Sandbox, attack: Attack
) -> None:
    files = {"attack.py": attacks.SLEEPER, "own": "mine"}
    command = PythonScript("attack.py")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(sandbox.run_sync, files, command, timeout_s=60)
        (hidden,) = processes.wait_for_sleepers(below=os.getpid())
        workspace = Path(f"/proc/{hidden}/cwd").readlink()
        boxes = [workspace, workspace.with_name("tmp")]
        result = attack(
            sandbox, attacks.SEEK, *map(str, boxes if sandbox.rung.landlock else [])
        )
        os.kill(hidden, signal.SIGUSR1)
        assert running.result().stdout == "mine\n"
    assert result.ok, result
    assert "REACHED" not in result.stdout
    assert "refused" in result.stdout or not sandbox.rung.landlock


def test_memory_of_the_zygote_holds_no_earlier_workspace(
    sandbox: Sandbox, attack: Attack
) -> None:
    if sandbox.rung.landlock:
        pytest.skip("this rung hides /proc, so the search below cannot be made")
    head, tail = "needle", "in-a-haystack"
    control = f"planted = {head + tail!r}\n" + attacks.SEARCH_MEMORY
    assert "REACHED" in attack(sandbox, control, head, tail).stdout
    files = {"attack.py": "print(1)", "x": (head + tail) * 1000}
    sandbox.run_sync(files, PythonScript("attack.py"))
    result = attack(sandbox, attacks.SEARCH_MEMORY, head, tail)
    assert result.stdout == "refused 0\n", result


def test_awkward_trees_are_removed_and_collected(sandbox: Sandbox) -> None:
    script = (
        "import os\n"
        "os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo')\n"
        "open('new', 'w').write('n'); os.remove('gone')\n"
        "os.makedirs('locked/in'); os.chmod('locked', 0)\n"
        "for _ in range(120): os.mkdir('d'); os.chdir('d')\n"
    )
    files = {"attack.py": script, "gone": "x", "kept": "y"}
    result = sandbox.run_sync(files, PythonScript("attack.py"), collect=True)
    assert result.ok, result
    assert result.files == {"new": "n", "gone": None}
    again = sandbox.run_sync(files, PythonScript("attack.py"), collect=True)
    assert again.files == result.files
