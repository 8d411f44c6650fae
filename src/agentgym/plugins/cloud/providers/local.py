"""LocalMachine: offer this machine's GPUs, or its CPU if it has no GPU."""

import subprocess

from agentgym.plugins.cloud.base import Machine, MachineState, Offer, Provider

_TIMEOUT_S = 10.0
_MIB_A_GB = 1000**3 / 2**20


class LocalMachine(Provider):
    """Offers the machine that runs this process; rents nothing."""

    name = "local"
    is_rented = False

    def check(self) -> None:
        """Do nothing: the local machine needs no setup."""

    def offers(self) -> list[Offer]:
        """Return one offer per GPU that ``nvidia-smi`` lists, or one for the CPU."""
        import psutil

        memory = psutil.virtual_memory().total / 1000**3
        found = [
            Offer(self.name, f"GPU {index}", gpu, 1, mib / _MIB_A_GB, memory)
            for index, (gpu, mib) in enumerate(_gpus())
        ]
        return found or [Offer(self.name, "CPU", "", 0, 0.0, memory)]

    def launch(self, offer: Offer, name: str, public_key: str) -> Machine:
        """Return this machine, which is already running."""
        return Machine(self.name, "this", name, MachineState.RUNNING)

    def describe(self, machine: Machine) -> Machine:
        """Return the machine unchanged."""
        return machine

    def terminate(self, machine: Machine) -> None:
        """Do nothing: this machine was not rented."""

    def machines(self) -> list[Machine]:
        """Return an empty list, since this provider rents no machines."""
        return []


def _gpus() -> list[tuple[str, float]]:
    """Return each GPU's name and memory in MiB; empty without ``nvidia-smi``."""
    words = ["nvidia-smi", "--query-gpu=name,memory.total"]
    words.append("--format=csv,noheader,nounits")
    try:
        message = subprocess.run(
            words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.rpartition(",") for line in message.splitlines()]
    return [
        (name.strip(), float(memory))
        for name, _, memory in lines
        if memory.strip().replace(".", "", 1).isdigit()
    ]
