"""A machine that lacks something is told of before anything is sent."""

import getpass
from pathlib import Path

import pytest

from agentgym.version import __version__
from tests.cli.conftest import (
    Command,
    agentgym,  # noqa: F401 - a fixture
)
from tests.plugins.cloud.sshd import Machine

TRAIN = ("train", "coding", "--framework", "native", "--name", "x", "--gpu")


def restart(machine: Machine) -> None:
    machine.stop_listening()
    machine.start()


def refused(agentgym: Command, machine: Machine) -> str:  # noqa: F811
    """Return what is said of a machine that cannot be trained on."""
    ended = agentgym(*TRAIN, machine.gpu)
    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert not Path("runs/x").exists()
    return ended.err


@pytest.mark.slow
def test_no_space(machine: Machine, agentgym: Command) -> None:  # noqa: F811
    row = "/dev/x 100 99 102400 99% /"
    machine.shim("df", f"echo 'Filesystem 1024-blocks'; echo '{row}'\n", there=True)
    restart(machine)
    told = refused(agentgym, machine)
    assert f"Only 100 MB are free in {machine.home} on {getpass.getuser()}@" in told


@pytest.mark.slow
def test_no_uv_and_no_network(machine: Machine, agentgym: Command) -> None:  # noqa: F811
    del machine.environment["AGENTGYM_ELSEWHERE_PYTHON"]
    fails = "echo 'curl: (6) Could not resolve host: astral.sh' >&2; exit 6\n"
    machine.shim("curl", fails, there=True)
    machine.shim("python3", "echo 'no module named venv' >&2; exit 1\n", there=True)
    machine.shim("df", "echo; echo /dev/x 9 9 99000000 9% /\n", there=True)
    restart(machine)
    told = refused(agentgym, machine)
    assert "could not be fetched there" in told
    assert "Could not resolve host: astral.sh" in told
    assert "https://docs.astral.sh/uv" in told


@pytest.mark.slow
def test_uv_that_cannot_install(machine: Machine, agentgym: Command) -> None:  # noqa: F811
    del machine.environment["AGENTGYM_ELSEWHERE_PYTHON"]
    script = 'case $1 in pip) echo "error: dns error" >&2; exit 2;; esac\n'
    machine.shim("uv", script, there=True)
    machine.shim("df", "echo; echo /dev/x 9 9 99000000 9% /\n", there=True)
    restart(machine)
    told = refused(agentgym, machine)
    assert "could not be installed" in told
    assert "dns error" in told
    wheels = list((machine.home / ".agentgym/elsewhere/wheels").rglob("*.whl"))
    assert [path.name for path in wheels] == [
        f"agentgym_sdk-{__version__}-py3-none-any.whl"
    ]


@pytest.mark.slow
def test_another_version(machine: Machine, agentgym: Command) -> None:  # noqa: F811
    machine.shim("python", "echo 0.0.9\n", there=True)
    python = str(machine.folder / "bin-there" / "python")
    machine.environment["AGENTGYM_ELSEWHERE_PYTHON"] = python
    restart(machine)
    assert f"has agentgym 0.0.9, and here is {__version__}" in refused(
        agentgym, machine
    )


@pytest.mark.slow
def test_another_system(machine: Machine, agentgym: Command) -> None:  # noqa: F811
    machine.shim("uname", "echo Darwin\n", there=True)
    restart(machine)
    assert "runs Darwin; training needs Linux" in refused(agentgym, machine)


def test_nothing_is_asked_in_a_dry_run(
    agentgym: Command,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    ended = agentgym(*TRAIN, "ssh:me@host.invalid:2222", "--dry-run")
    assert ended.code == 0
    assert "me@host.invalid:2222, over SSH" in ended.out
    assert f"agentgym_sdk-{__version__} [local]" in ended.out
    assert "the values of HF_TOKEN" in ended.out
    assert "hf_planted" not in ended.out
    assert not Path("runs").exists()
