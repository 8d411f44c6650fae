"""What every test starts from: no settings of the developer's own."""

import gc
import itertools
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import httpx
import pytest

# Tests start processes that import frameworks and torch, again and again: where no
# bytecode is kept, compiling takes them half their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Several workers share the cores: threads of OpenMP that spin while they wait take them
# from the others, which makes language models three times as slow.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.dont_write_bytecode = False
# Scanning the objects of all frameworks takes a quarter of the time to import them.
gc.disable()
_NUMBERS = itertools.count()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start three processes for two cores: tests wait, and each process imports."""
    return min(3 * (os.cpu_count() or 1) // 2, 16)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write what tests have measured: ``record_property("measured", "…")``."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(f"measured: {value}")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Leave what was imported out of each garbage collection to come."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let the objects be freed at the end: some packages report those that are not."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def shared_authorities() -> Iterator[None]:
    """Let HTTP clients share the machine's certificates: to read them takes 30 ms."""
    with pytest.MonkeyPatch.context() as patch:
        read = cache(httpx.create_ssl_context)
        patch.setattr("httpx._transports.default.create_ssl_context", read)
        yield


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield an empty AGENTGYM_HOME, the only AGENTGYM_* variable that is set."""
    # mktemp() looks at all folders that there are, for each of thousands of tests.
    home = tmp_path_factory.getbasetemp() / f"home{next(_NUMBERS)}"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AGENTGYM_")]:
            patch.delenv(name)
        patch.setenv("AGENTGYM_HOME", str(home))
        yield home


@pytest.fixture(autouse=True)
def own_modules(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget modules that a test wrote into its folder: others write ``app`` too."""
    if "tmp_path" not in request.fixturenames:
        yield
        return
    folder = str(request.getfixturevalue("tmp_path"))
    before = set(sys.modules)
    yield
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
            del sys.modules[name]
