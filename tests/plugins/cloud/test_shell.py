"""Logging in: what is refused, and what the user is told to do."""

import subprocess
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError, ConfigError, UnreachableError
from agentgym.plugins.cloud.base import Address
from agentgym.plugins.cloud.shell import Shell
from tests.plugins.cloud.sshd import Machine


def shell_of(machine: Machine) -> Shell:
    return Shell(Address.parse(machine.gpu.partition(":")[2]))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host", Address("host")),
        ("me@host", Address("host", 22, "me")),
        ("me@host.example:2222", Address("host.example", 2222, "me")),
        ("me@[fe80::1]:23", Address("fe80::1", 23, "me")),
    ],
)
def test_an_address_is_read_as_it_is_written(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text
    assert TrainingConfig(gpu=f"ssh:{text}").gpu == f"ssh:{text}"


@pytest.mark.parametrize(
    "gpu",
    ["ssh:", "ssh", "ssh:-oProxyCommand=x", "ssh:a b", "ssh:h:0", "ssh:h:99999", "shh"],
)
def test_what_is_no_machine_is_refused(gpu: str) -> None:
    with pytest.raises(ConfigError, match="ssh:user@host"):
        TrainingConfig.create(gpu=gpu)


def test_an_unreachable_machine(machine: Machine) -> None:
    machine.stop_listening()
    with pytest.raises(UnreachableError, match=r"refused.*ssh -p \d+ "):
        shell_of(machine).run("true")


def test_a_key_that_is_not_let_in(machine: Machine) -> None:
    other = machine.folder / "other"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)]
    subprocess.run(words, check=True)
    machine.write_client_config(other)
    with pytest.raises(
        ComputeError, match="cannot be logged in to: .*Permission denied"
    ) as caught:
        shell_of(machine).run("true")
    assert not isinstance(caught.value, UnreachableError)


def test_a_host_with_another_key_than_before(machine: Machine) -> None:
    machine.stop_listening()
    machine.new_host_key()
    machine.start()
    told = rf"another key.*remove the old key \({machine.known_hosts}:1\)"
    with pytest.raises(ComputeError, match=told):
        shell_of(machine).run("true")


@pytest.mark.slow
def test_a_rented_machine_is_trusted_once(machine: Machine, tmp_path: Path) -> None:
    machine.known_hosts.unlink()
    machine.write_client_config(tmp_path / "none")
    address = Address.parse(machine.gpu.partition(":")[2])
    shell = Shell(address, machine.user_key, tmp_path / "the run's" / "known_hosts")
    (tmp_path / "the run's").mkdir()
    assert shell.run("echo in") == "in\n"
    machine.drop_connections()
    machine.stop_listening()
    machine.new_host_key()
    machine.start()
    with pytest.raises(ComputeError, match="another key than before"):
        shell.run("echo in")
    assert not machine.known_hosts.exists()
