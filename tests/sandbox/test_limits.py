"""What a program uses is counted, whatever it does, and is its own failure."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from agentgym.sandbox import Sandbox
from agentgym.sandbox.guest.box import holds_more
from agentgym.sandbox.guest.settings import RUNGS
from agentgym.sandbox.guest_process import MemoryGroup
from tests.sandbox import attacks
from tests.sandbox.conftest import ISOLATING, Attack, opened

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


@pytest.mark.slow
def test_sleeping_counts(each: Sandbox, attack: Attack) -> None:
    script = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    result = attack(each, script, timeout_s=0.4)
    assert (result.stdout, result.timed_out) == ("begun\n", True), result
