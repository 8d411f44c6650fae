"""What one sandboxed execution costs: bare, cold, warm and cached, in one run.

    python benchmarks/sandbox_latency.py [--runs 40] [--rung bubblewrap]
    python benchmarks/sandbox_latency.py --in-flight 64 [--runs 2000]

Each round runs all ways once, in random order, so that they share the machine's noise.
The job is the tests of a tiny package. CPU counts the host, the zygote and the
execution together; ``bare`` is `python -c` of the same tests with no sandbox, and
``pytest`` is the same with pytest and no plugins, where it is installed. ``fork`` and
``fork pytest`` run them in a fork of this process, which has imported the runner.
With ``--in-flight``, warm executions alone, so many at a time.
"""

import argparse
import contextlib
import gc
import importlib.util
import io
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentgym.sandbox import RunTests, Sandbox, SandboxConfig
from agentgym.sandbox.guest import testrun
from agentgym.sandbox.guest.settings import RUNGS

FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": (
        "from dataclasses import dataclass, field\n"
        "@dataclass\n"
        "class Cart:\n"
        "    prices: list[int] = field(default_factory=list)\n"
        "    def add(self, price: int, count: int = 1) -> None:\n"
        "        self.prices += [price] * count\n"
        "    def total(self) -> int:\n"
        "        return sum(self.prices)\n"
    ),
    "tests/test_cart.py": (
        "from shop.cart import Cart\n"
        "def test_empty():\n    assert Cart().total() == 0\n"
        "def test_add():\n    c = Cart()\n    c.add(3, 2)\n    assert c.total() == 6\n"
        "def test_fresh():\n    assert Cart().prices is not Cart().prices\n"
    ),
}
BARE = (
    "import tests.test_cart as t\n[f() for n, f in vars(t).items() if n[:5] == 'test_']"
)


def cpu_seconds() -> float:
    """CPU of this process, its ended children, and its living descendants."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + _living()


def _living() -> float:
    """CPU of living descendants with their ended children, from ``/proc``."""
    tick = os.sysconf("SC_CLK_TCK")
    parents, cpu = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            cpu[int(entry.name)] = sum(map(int, fields[11:15])) / tick
    family = {os.getpid()}
    while more := {pid for pid, up in parents.items() if up in family} - family:
        family |= more
    return sum(cpu[pid] for pid in family - {os.getpid()})


def in_sandbox(sandbox: Sandbox) -> Callable[[], float]:
    """Return a way that runs the tests in a sandbox and returns the guest's CPU."""

    def run() -> float:
        result = sandbox.run_sync(FILES, RunTests())
        if not result.ok:
            raise RuntimeError(f"the benchmark's own tests did not pass: {result}")
        return 0.0 if result.cached else result.cpu_s

    return run


def in_process(argv: list[str], folder: Path) -> Callable[[], float]:
    """Return a way that runs a command in a folder with no sandbox."""

    def run() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


def in_fork(folder: Path, tests: Callable[[], int]) -> Callable[[], float]:
    """Return a way that runs tests in a fork of this process, in a folder."""

    def run() -> float:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.chdir(folder)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            sys.dont_write_bytecode = True
            sys.path.insert(0, str(folder))
            os._exit(int(tests()))
        _, status, usage = os.wait4(pid, 0)
        if status:
            raise RuntimeError("the benchmark's own tests did not pass in a fork")
        return usage.ru_utime + usage.ru_stime

    return run


def measure(ways: dict[str, Callable[[], float]], runs: int) -> None:
    """Run all ways in random order, so many rounds, and write the table."""
    wall: dict[str, list[float]] = {name: [] for name in ways}
    guest: dict[str, list[float]] = {name: [] for name in ways}
    for run in ways.values():
        run()
    for _ in range(runs):
        for name in random.sample(list(ways), len(ways)):
            started = time.perf_counter()
            guest[name].append(ways[name]() * 1e3)
            wall[name].append((time.perf_counter() - started) * 1e3)
    every: dict[str, float] = {}
    for name, run in ways.items():
        before = cpu_seconds()
        for _ in range(runs):
            run()
        every[name] = (cpu_seconds() - before) / runs * 1e3
    base = statistics.median(wall["warm"])
    write = sys.stdout.write
    write(f"{'':12}{'wall p50':>10}{'wall min':>10}{'of warm':>9}")
    write(f"{'exec CPU p50':>14}{'exec CPU min':>14}{'all CPU mean':>14}   (ms)\n")
    for name in ways:
        median = statistics.median(wall[name])
        write(f"{name:12}{median:10.2f}{min(wall[name]):10.2f}{median / base:8.2f}x")
        write(f"{statistics.median(guest[name]):14.2f}{min(guest[name]):14.2f}")
        write(f"{every[name]:14.2f}\n")


def measure_at_once(rung: str | None, runs: int, in_flight: int) -> None:
    """Run warm executions, so many at a time, and write how many a second."""
    config = SandboxConfig(rung=rung, concurrency=in_flight, cache_bytes=0)
    with Sandbox(config) as sandbox, ThreadPoolExecutor(in_flight) as pool:
        way = in_sandbox(sandbox)

        def timed(_: int) -> tuple[float, float]:
            started = time.perf_counter()
            guest = way()
            return (time.perf_counter() - started) * 1e3, guest * 1e3

        list(pool.map(timed, range(2 * in_flight)))
        started = time.perf_counter()
        times = list(pool.map(timed, range(runs)))
        rate = runs / (time.perf_counter() - started)
        wall, guest = (statistics.median(column) for column in zip(*times, strict=True))
        sys.stdout.write(
            f"rung {sandbox.rung.name}, {runs} runs, {in_flight} in flight: "
            f"{rate:.0f}/s, wall p50 {wall:.1f} ms, exec CPU p50 {guest:.2f} ms\n"
        )


def own_runner() -> int:
    """Run the tests with the built-in runner, in this process."""
    return testrun.run(["tests/test_cart.py"], [], lambda event: None)


def imported_pytest(folder: Path) -> Callable[[], int]:
    """Return a run of pytest that finds imported whatever pytest imports on its way."""
    import pytest

    options = ["-q", "-s", "-p", "no:cacheprovider"]
    with (
        tempfile.TemporaryDirectory() as other,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        Path(other, "test_any.py").write_text("def test_any():\n    assert 1 == 1\n")
        pytest.main([*options, f"--rootdir={other}", other])
    gc.freeze()
    return lambda: pytest.main([*options, f"--rootdir={folder}", "tests"])


def main() -> None:
    """Measure the best rung, or the one that is named."""
    warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--rung", choices=list(RUNGS))
    parser.add_argument("--in-flight", type=int)
    options = parser.parse_args()
    if options.in_flight:
        measure_at_once(options.rung, options.runs or 2000, options.in_flight)
        return
    runs = options.runs or 40
    with (
        tempfile.TemporaryDirectory() as folder,
        Sandbox(SandboxConfig(rung=options.rung, cache_bytes=0)) as warm,
        Sandbox(SandboxConfig(rung=options.rung, cache_bytes=0, warm=False)) as cold,
        Sandbox(SandboxConfig(rung=options.rung)) as cached,
    ):
        for name, text in FILES.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        bare = [sys.executable, "-I", "-c", "import sys; sys.path[:0] = ['.']\n" + BARE]
        ways = {
            "bare": in_process(bare, Path(folder)),
            "cold": in_sandbox(cold),
            "warm": in_sandbox(warm),
            "cached": in_sandbox(cached),
        }
        if importlib.util.find_spec("pytest"):
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            ways["pytest"] = in_process(pytest, Path(folder))
            ways["fork"] = in_fork(Path(folder), own_runner)
            ways["fork pytest"] = in_fork(Path(folder), imported_pytest(Path(folder)))
        sys.stdout.write(f"rung {warm.rung.name}, {runs} runs\n")
        measure(ways, runs)


if __name__ == "__main__":
    main()
