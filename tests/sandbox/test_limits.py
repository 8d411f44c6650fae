"""What a program uses is counted, whatever it does, and is its own failure."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agentgym.sandbox import Sandbox, SandboxConfig, SandboxResult
from agentgym.sandbox.guest.box import holds_more
from agentgym.sandbox.guest.settings import RUNGS
from agentgym.sandbox.guest_process import MemoryGroup
from agentgym.sandbox.ladder import probe
from tests.sandbox import attacks
from tests.sandbox.conftest import ISOLATING, Attack, opened

_MAKE = 2 * 1000
_FAR_TOO_MANY = 21 * 1000


@pytest.fixture(params=ISOLATING)
def each(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with opened(request.param) as sandbox:
        yield sandbox


@pytest.mark.parametrize("args", [(), pytest.param(("lower",), marks=pytest.mark.slow)])
@pytest.mark.parametrize("group", [True, False], ids=["group", "no-group"])
@pytest.mark.parametrize("rung", ISOLATING)
def test_shared_memory_is_counted_or_refused(
    rung: str,
    group: bool,
    args: tuple[str, ...],
    attack: Attack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if group and MemoryGroup.make() is None:
        pytest.skip("no memory control group can be made here")
    if not group:
        monkeypatch.setattr(MemoryGroup, "make", lambda: None)
    with opened(rung) as sandbox:
        result = attack(sandbox, attacks.HIDDEN_MEMORY, *args, timeout_s=20)
        again = attack(sandbox, "print(1)")
    assert "REACHED /dev/zero" not in result.stdout
    if group and RUNGS[rung].forks:
        assert (result.status, result.signal) == ("killed", 9), result
        assert "memory" in result.error
    else:
        assert result.status == "exited", result
        assert "REACHED" not in result.stdout
        assert "refused" in result.stdout
    assert again.stdout == "1\n", again


def test_shared_memory_within_the_limit(each: Sandbox, attack: Attack) -> None:
    if MemoryGroup.make() is None:
        pytest.skip("no memory control group can be made here")
    script = "import mmap; m = mmap.mmap(-1, 9000); m[:3] = b'abc'; print(m[:3])"
    assert attack(each, script).stdout == "b'abc'\n"


@pytest.mark.slow
def test_what_was_held_is_free_for_the_next(each: Sandbox, attack: Attack) -> None:
    script = "import os; b = bytearray(60 << 20); open('f', 'wb').write(bytes(9 << 20))"
    for _ in range(6):
        assert attack(each, script).ok


def test_many_files_are_removed(each: Sandbox, attack: Attack) -> None:
    result = attack(each, attacks.MANY_FILES, str(_MAKE))
    assert result.ok, result
    assert int(result.stdout) >= _MAKE
    assert attack(each, "import os; print(os.listdir())").stdout == "['attack.py']\n"
    assert each.restarts == 0


@pytest.mark.slow
def test_too_many_files_are_the_programs_failure(each: Sandbox, attack: Attack) -> None:
    """Where a mount bounds them, the program is told; else it is stopped after."""
    result = attack(each, attacks.MANY_FILES, str(_FAR_TOO_MANY), timeout_s=60)
    if each.rung.landlock:
        assert (result.status, result.signal, result.exit_code) == ("killed", 9, None)
        assert "files" in result.error
    else:
        assert result.ok, result
        assert int(result.stdout) < 10_000
    assert attack(each, "print(1)").stdout == "1\n"
    assert each.restarts == each.rung.landlock


@pytest.mark.slow
@pytest.mark.parametrize("rung", [rung for rung in ISOLATING if RUNGS[rung].landlock])
def test_files_are_counted_while_they_are_made(rung: str, attack: Attack) -> None:
    script = (
        "import os\n"
        "print(os.getcwd(), flush=True)\n"
        "made = 0\n"
        "while True:\n"
        "    os.mknod(f'{made}'); made += 1"
    )
    if reason := probe(RUNGS[rung]):
        pytest.skip(f"the rung {rung} does not work here: {reason}")
    with Sandbox(SandboxConfig(rung=rung, cache_bytes=0)) as sandbox:
        result = attack(sandbox, script, timeout_s=3600)
        assert (result.status, result.signal) == ("killed", 9), result
        assert "files" in result.error
        assert not os.path.exists(result.stdout.strip())
        assert attack(sandbox, "print(1)").stdout == "1\n"


@pytest.mark.parametrize(
    ("tree", "more"),
    [
        (["a", "b/c", "b/d/e"], True),
        (["a", "b/c"], False),
        ([], False),
        (["/".join("d" * 3)], False),
    ],
)
def test_counting_a_tree(tmp_path: Path, tree: list[str], more: bool) -> None:
    for folder in tree:
        (tmp_path / "tree" / folder).mkdir(parents=True)
    if tree:
        (tmp_path / "tree" / "link").symlink_to("/")
    assert holds_more(str(tmp_path / "tree"), 4) == more


@pytest.mark.slow
def test_a_tree_of_many_branches_is_too_much(tmp_path: Path) -> None:
    at = tmp_path
    for _ in range(300):
        for name in range(10):
            (at / str(name)).mkdir()
        at = at / "0"
    opened_before = len(os.listdir("/proc/self/fd"))
    assert holds_more(str(tmp_path), 10_000)
    assert len(os.listdir("/proc/self/fd")) == opened_before


def test_timers_are_limited(each: Sandbox, attack: Attack) -> None:
    script = (
        "import ctypes\n"
        "libc, timer, made = ctypes.CDLL(None), ctypes.c_void_p(), 0\n"
        "while made < 5000 and not libc.timer_create(1, None, ctypes.byref(timer)):\n"
        "    made += 1\n"
        "print(made)"
    )
    assert 0 < int(attack(each, script).stdout) <= 1024


@pytest.mark.slow
def test_threads_are_counted_where_the_kernel_cannot(attack: Attack) -> None:
    script = (
        "import threading\n"
        "hold = threading.Event(); threading.stack_size(1 << 16)\n"
        "for _ in range({}): threading.Thread(target=hold.wait, daemon=True).start()\n"
        "print('all', flush=True); hold.wait({})"
    )
    with opened("landlock-user") as sandbox:
        many = attack(sandbox, script.format(60, 3600), timeout_s=7200)
        few = attack(sandbox, script.format(31, 1))
    assert (many.stdout, many.status) == ("all\n", "killed"), many
    assert "threads" in many.error
    assert few.ok, few


def _writes_are_counted() -> bool:
    def counted() -> str:
        return Path("/proc/self/io").read_text().partition("\nwrite_bytes:")[2]

    before = counted()
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 20))
        file.flush()
        return counted() != before


@pytest.mark.parametrize(
    "how",
    ["", "child", *(pytest.param(n, marks=pytest.mark.slow) for n in ("hide", "room"))],
)
def test_the_disk_cannot_be_filled(each: Sandbox, attack: Attack, how: str) -> None:
    """Where a mount bounds them, the program is told; else it is stopped."""
    if each.rung.landlock and not _writes_are_counted():
        pytest.skip("the temporary folder is on no disk")
    result = attack(each, attacks.FILL_DISK, how, timeout_s=60)
    if each.rung.landlock and not (each.rung.strict and how == "child"):
        assert (result.status, result.signal) == ("killed", 9), result
        assert "disk_mb" in result.error
    else:
        assert result.status == "exited", result
        assert "refused" in result.stdout
    assert attack(each, "print(1)").stdout == "1\n"
    assert each.restarts == 0


def test_writing_within_the_limit(each: Sandbox, attack: Attack) -> None:
    script = (
        "import os\n"
        "for _ in range(30):\n    with open('f', 'wb') as f: f.write(bytes(1 << 20))\n"
        "with open('g', 'wb') as f: os.posix_fallocate(f.fileno(), 0, 1 << 20)\n"
        "print(os.path.getsize('g') >> 20)"
    )
    assert attack(each, script).stdout == "1\n"


_BURN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[2])})
while time.process_time() < float(sys.argv[1]):
    pass
print("done")
"""


@contextmanager
def _busy(cpu: int) -> Iterator[None]:
    """Keep a processor busy with six other programs, each of a session of its own."""
    script = (
        f"import os; os.sched_setaffinity(0, {{{cpu}}}); print(1, flush=True)\n"
        "while True: pass"
    )
    with ExitStack() as stack:
        for _ in range(6):
            argv = [sys.executable, "-c", script]
            other = subprocess.Popen(
                argv, stdout=subprocess.PIPE, start_new_session=True
            )
            stack.enter_context(other)
            stack.callback(other.kill)
            assert other.stdout is not None
            assert other.stdout.readline() == b"1\n"
        yield


@pytest.mark.slow
def test_a_busy_machine_changes_no_verdict(each: Sandbox, attack: Attack) -> None:
    cpu = min(os.sched_getaffinity(0))
    with _busy(cpu):
        result = attack(each, _BURN, "0.4", str(cpu), timeout_s=0.8)
        late = attack(each, _BURN, "2", str(cpu), timeout_s=0.4)
    assert result.stdout == "done\n", result
    assert late.timed_out, late


_BURN_IN_CHILDREN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[2])})
for _ in range(2):
    if os.fork() == 0:
        while time.process_time() < float(sys.argv[1]):
            pass
        os._exit(0)
for _ in range(2):
    os.wait()
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("rung", ISOLATING)
def test_the_second_execution_of_a_zygote_is_judged_like_the_first(
    rung: str, attack: Attack
) -> None:
    """The kernel may still hold a list of the processes of the one before."""
    cpu = min(os.sched_getaffinity(0))
    waits = "import time; time.sleep(0.3); print('waited')"
    with opened(rung, concurrency=1) as sandbox, _busy(cpu):

        def second(script: str, *args: str, timeout_s: float) -> SandboxResult:
            assert attack(sandbox, waits, timeout_s=1).stdout == "waited\n"
            return attack(sandbox, script, *args, timeout_s=timeout_s)

        burn = _BURN_IN_CHILDREN if sandbox.rung.forks else _BURN
        right = second(burn, "0.1", str(cpu), timeout_s=0.4)
        late = second(burn, "2", str(cpu), timeout_s=0.2)
        assert right.stdout == "done\n", right
        assert late.timed_out, late
        filled = second(attacks.FILL_DISK, timeout_s=60)
        if not sandbox.rung.landlock:
            assert "refused" in filled.stdout, filled
        elif _writes_are_counted():
            assert "disk_mb" in filled.error, filled
            assert filled.stdout == "", "it wrote all of its 4 GB before it was stopped"
        assert sandbox.restarts == 0


@pytest.mark.slow
def test_sleeping_counts(each: Sandbox, attack: Attack) -> None:
    script = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    result = attack(each, script, timeout_s=0.4)
    assert (result.stdout, result.timed_out) == ("begun\n", True), result


@pytest.mark.slow
def test_threads_that_wait_while_one_computes_do_not_sleep(
    each: Sandbox, attack: Attack
) -> None:
    script = (
        "import threading, time\n"
        "def burn():\n    while time.process_time() < 0.3: pass\n"
        "thread = threading.Thread(target=burn); thread.start(); thread.join()\n"
        "print('done')"
    )
    result = attack(each, script, timeout_s=1)
    assert result.stdout == "done\n", result


@pytest.mark.slow
def test_processes_are_counted_together(each: Sandbox, attack: Attack) -> None:
    script = (
        "import os, time\n"
        "def burn(seconds):\n"
        "    while time.process_time() < seconds: pass\n"
        "try:\n    children = [os.fork() for _ in range(3)]\n"
        "except OSError as error:\n    print('refused', error)\n"
        "else:\n    burn(0.4)\n    os._exit(0)\n"
    )
    result = attack(each, script, timeout_s=1)
    if each.rung.forks:
        assert result.timed_out, result
    else:
        assert "refused" in result.stdout
