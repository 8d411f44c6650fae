"""Which engine's environment is installed on a machine, by what the machine has."""

from typing import cast

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError
from agentgym.plugins.cloud.base import Address
from agentgym.plugins.cloud.install import Ready, prepare
from agentgym.plugins.cloud.shell import Shell
from agentgym.plugins.cloud.upload import make_upload
from agentgym.version import __version__

BIG = "Qwen/Qwen3-4B"


class Box:
    """Stands where a machine's shell does: it has a Python, and says what else."""

    address = Address("box")

    def __init__(self, **facts: object) -> None:
        self.facts = {
            "writable": "yes",
            "home": "/home/me",
            "system": "Linux",
            "free_mb": 99_000,
            "python": "/usr/bin/python3",
            "uv": "/usr/bin/uv",
            **facts,
        }
        self.fails = ""
        self.installed = False

    def run(self, command: str, *, data: bytes = b"", timeout_s: float = 60.0) -> str:
        """Answer as a machine would."""
        if "say home" in command:
            return "".join(f"{name}={value}\n" for name, value in self.facts.items())
        if "engine install" in command:
            if self.fails:
                raise ComputeError(self.fails)
            self.installed = True
            return ""
        return f"{__version__}\n"


def prepared(shell: Box, told: list[str], **settings: object) -> Ready:
    given = {"model": BIG, "framework": "native", "gpu": "ssh:me@box", **settings}
    upload = make_upload(TrainingConfig.create(scenario="coding", **given))
    return prepare(cast(Shell, shell), upload, told.append)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("facts", "model", "is_installed"),
    [
        ({"gpus": 1, "gpu_mb": 24_564}, BIG, True),
        ({"gpus": 1, "gpu_mb": ""}, BIG, True),  # its driver does not say
        ({"gpus": 1, "gpu_mb": 16_376}, BIG, False),
        ({"gpus": 1, "gpu_mb": 24_564, "free_mb": 30_000}, BIG, False),
        ({"gpus": 0}, BIG, False),
        ({"gpus": 1, "gpu_mb": 24_564}, "nano", False),
        ({"gpus": 1, "gpu_mb": 24_564}, "some/unknown-model", True),
        ({"gpus": 1, "gpu_mb": 24_564, "engine": "yes"}, BIG, False),  # it has it
    ],
    ids=str,
)
def test_vllm_is_installed_where_the_machine_has_room_for_it(
    facts: dict[str, object], model: str, is_installed: bool
) -> None:
    shell, told = Box(**facts), list[str]()
    assert prepared(shell, told, model=model) == Ready("/usr/bin/python3", "/home/me")
    assert shell.installed == is_installed
    assert any("Installing vllm on box" in words for words in told) == is_installed


@pytest.mark.slow
def test_a_machine_that_cannot_install_vllm_trains_without_it() -> None:
    shell, told = Box(gpus=1, gpu_mb=24_564), list[str]()
    shell.fails = "dns error"
    prepared(shell, told)
    assert "vllm could not be installed on box. dns error" in told[-1]
    assert told[-1].endswith("This run samples with the local engine instead.")
    with pytest.raises(ComputeError, match="dns error"):
        prepared(shell, told, engine="vllm")


@pytest.mark.slow
def test_without_vllm_nothing_is_installed() -> None:
    shell = Box(gpus=1, gpu_mb=24_564)
    prepared(shell, [], engine="local")
    assert not shell.installed
