"""Agents whose tools are a real MCP server's: looked at, trained, and ended with it."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integrations.mcp_clerks import AGENTS, SERVER, trained
from tests.packages import unpacked_wheels
from tests.variants import first_of

# Each trains, starts servers, and imports a framework.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NEWER = (
    *("mcp==2.3.0", "mcp-types==2.3.0"),
    *("httpx2==2.16.2", "httpcore2==2.16.2", "truststore==0.10.5"),
)
"""The package that Agent Framework takes; other frameworks here want an older one."""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    program = tmp_path / "shop"
    program.write_text(SERVER.replace("{python}", sys.executable))
    program.chmod(0o755)
    return program


@contextmanager
def serving(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the server on a port of this machine, at the address SHOP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("SHOP", f"http://127.0.0.1:{port}/mcp")
    with subprocess.Popen([shop, str(port)], env=os.environ) as process:
        try:
            until = time.monotonic() + 30
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert time.monotonic() < until
                time.sleep(0.1)
            yield
            assert process.poll() is None, "a run leaves another's server alone"
        finally:
            process.terminate()


def trained_apart(name: str, packages: Path) -> dict[str, Any]:
    """Train in a process that finds these packages before the installed ones."""
    paths = [str(packages), str(ROOT), os.getcwd()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations.mcp_clerks", name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any]) -> None:
    assert found["problems"] == []
    assert found["acting"] == found["tools"]
    assert found["steps"] == 2
    assert found["trained"] > 0
    assert Path("calls").exists(), "a call reached the server"


def starts() -> set[int]:
    """Return the processes of the server, when none of them is left."""
    pids = {int(line) for line in Path("starts").read_text().split()}
    until = time.monotonic() + 20
    while left := [pid for pid in pids if psutil.pid_exists(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.1)
    return pids


STDIO = [name for name in AGENTS if "http" not in name and "framework" not in name]
HTTP = ["pydantic_ai over http", "openai_agents over http"]


@pytest.mark.parametrize("name", first_of(STDIO, 2))
def test_an_mcp_server_ends_with_the_run(name: str, shop: Path) -> None:
    found = trained(name)
    check(found)
    if name not in ("langchain", "crewai"):
        # for each look, and once a worker
        assert len(starts()) < found["episodes"]
        assert found["kinds"][0] == found["kinds"][1]
    starts()


@pytest.mark.parametrize("name", first_of(HTTP))
def test_a_server_at_an_address_is_reached(
    name: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(shop, monkeypatch):
        check(trained(name))


@pytest.mark.parametrize(
    "name", first_of(["agent_framework", "agent_framework over http"])
)
def test_servers_of_agent_framework(
    name: str, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = unpacked_wheels(tmp_path / "packages", *NEWER)
    if "http" in name:
        with serving(shop, monkeypatch):
            check(trained_apart(name, packages))
    else:
        found = trained_apart(name, packages)
        check(found)
        assert len(starts()) < found["episodes"]
        assert found["kinds"] == ["Agent", "Agent"]
