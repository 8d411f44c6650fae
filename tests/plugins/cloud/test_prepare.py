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

VARIABLE = "AGENTGYM_ELSEWHERE_PYTHON"
TRAIN = ("train", "coding", "--framework", "native", "--name", "x", "--gpu")


ROOM = "echo; echo /dev/x 9 9 99000000 9% /\n"
FULL = "echo 'Filesystem 1024-blocks'; echo '/dev/x 100 99 102400 99% /'\n"
NO_NETWORK = {
    "curl": "echo 'curl: (6) Could not resolve host: astral.sh' >&2; exit 6\n",
    "python3": "echo 'no module named venv' >&2; exit 1\n",
    "df": ROOM,
}
FAILS = 'case $1 in pip) echo "error: dns error" >&2; exit 2;; esac\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("programs", "python", "told"),
    [
        ({"df": FULL}, "here", ["Only 100 MB are free in {home} on {user}@"]),
        (
            NO_NETWORK,
            "",
            [
                "could not be fetched there",
                "Could not resolve host: astral.sh",
                "https://docs.astral.sh/uv",
            ],
        ),
        ({"uv": FAILS, "df": ROOM}, "", ["could not be installed", "dns error"]),
        (
            {"python": "echo 0.0.9\n"},
            "there",
            [f"has agentgym 0.0.9, and here is {__version__}"],
        ),
        ({"uname": "echo Darwin\n"}, "here", ["runs Darwin; training needs Linux"]),
    ],
    ids=["no space", "no uv", "no package", "another version", "another system"],
)
def test_a_machine_that_lacks_something(
    machine: Machine,
    agentgym: Command,  # noqa: F811
    programs: dict[str, str],
    python: str,
    told: list[str],
) -> None:
    for name, script in programs.items():
        machine.shim(name, script, there=True)
    if not python:
        del machine.environment[VARIABLE]
    elif python == "there":
        machine.environment[VARIABLE] = str(machine.folder / "bin-there" / "python")
    machine.stop_listening()
    machine.start()
    ended = agentgym(*TRAIN, machine.gpu)
    assert ended.code == 1
    assert "Traceback" not in ended.err
    for words in told:
        assert words.format(home=machine.home, user=getpass.getuser()) in ended.err
    assert not Path("runs/x").exists()
    wheels = (machine.home / ".agentgym/elsewhere/wheels").rglob("*.whl")
    sent = [path.name for path in wheels]
    assert sent in ([], [f"agentgym_sdk-{__version__}-py3-none-any.whl"])
    assert bool(sent) == ("uv" in programs)


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
