"""Provider: the interface to list, launch, describe and terminate rented machines.

Training on such a machine is controlled over SSH. Providers do not know which programs
run on their machines.
"""

import math
import re
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from agentgym.core.machines import split_address
from agentgym.core.registry import Registry
from agentgym.errors import ComputeError, UnsupportedError

_ARM = re.compile(r"(?<![A-Za-z])G[HB]\d{3}", re.IGNORECASE)
_NVIDIA_S = 10.0
_MIB_A_GB = 1000**3 / 2**20
NAME_PREFIX = "agentgym-"
"""Prefix of every rented machine's name; AgentGym ends only machines with it."""


def in_cents(hourly: float) -> str:
    """Format a price in $, rounded up to a cent.

    If a user copies the result as ``--max-hourly``, that limit allows the exact price.
    """
    return f"{math.ceil(round(hourly * 100, 6)) / 100:.2f}"


@dataclass(frozen=True)
class Offer:
    """A type of machine that can be rented.

    Attributes:
        provider: Name of the provider.
        kind: The provider's name for this type, e.g. ``gpu_1x_a10``.
        gpu: The GPU's usual name, e.g. ``A10``; empty without a GPU.
        gpus: Number of GPUs.
        gpu_memory_gb: Memory of each GPU, in GB as the provider reports it.
        memory_gb: Main memory in GB; 0 if the provider does not report it.
        hourly: Price per hour in $ for the whole machine; 0 for the local machine.
        disk_hourly: The part of ``hourly`` for the disk; 0 if not billed separately.
        is_spot: Whether the provider may take the machine away at any time.
        on_demand_hourly: The highest price per hour in $ to which the price of a spot
            machine may rise; 0 if the price cannot rise.
        region: The machine's region; empty if the provider chooses.
        is_available: Whether the provider had a free machine of this type when it was
            asked for its offers.
    """

    provider: str
    kind: str
    gpu: str
    gpus: int
    gpu_memory_gb: float
    memory_gb: float = 0.0
    hourly: float = 0.0
    region: str = ""
    is_available: bool = True
    disk_hourly: float = 0.0
    is_spot: bool = False
    on_demand_hourly: float = 0.0

    @property
    def most_hourly(self) -> float:
        """The highest possible price per hour in $; a spot price may rise."""
        return max(self.hourly, self.on_demand_hourly)

    @property
    def is_arm(self) -> bool:
        """Whether the CPU is NVIDIA's Grace (ARM); some packages do not support it."""
        return _ARM.search(f"{self.kind} {self.gpu}") is not None

    @property
    def price(self) -> str:
        """The price per hour in words, e.g. ``$0.45 an hour``."""
        disk = ", its disk included" if self.disk_hourly else ""
        spot = " as a spot machine" if self.is_spot else ""
        return f"${in_cents(self.hourly)} an hour{disk}{spot}"

    @property
    def where(self) -> str:
        """The region in words, e.g. `` in us-east-1``; empty if it is not known."""
        return f" in {self.region}" if self.region else ""

    @property
    def is_usable(self) -> bool:
        """Whether the CPU is supported, and memory and price are sound numbers."""
        prices = (self.hourly, self.on_demand_hourly)
        numbers = (self.gpu_memory_gb, self.memory_gb, *prices)
        return not self.is_arm and all(0 <= each < math.inf for each in numbers)


class MachineState(StrEnum):
    """The state of a machine.

    ``STOPPED``: it cannot be used, but may still cost money. ``GONE``: it is deleted,
    or is being deleted.
    """

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    GONE = "gone"


@dataclass(frozen=True)
class Address:
    """The address of a machine's SSH server.

    Attributes:
        host: Host name or IP address.
        port: Port of the SSH server.
        user: User to log in as; if empty, the user in ``~/.ssh/config``.
    """

    host: str
    port: int = 22
    user: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address in the format that ``str()`` returns."""
        user, host, port = split_address(text)
        return cls(host, port, user)

    def __str__(self) -> str:
        """Return the address as ``user@host:port``."""
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user}{host}" + (f":{self.port}" if self.port != 22 else "")


@dataclass(frozen=True)
class Machine:
    """A machine, with the state that its provider last reported.

    Attributes:
        provider: Name of the provider.
        id: The id that the provider gave the machine.
        name: The machine's name; starts with :data:`NAME_PREFIX` if it was rented.
        state: The machine's state.
        address: Address of its SSH server; None until it has one.
        hourly: The price per hour in $ that is billed; 0 if the provider does not
            report it.
        disk_hourly: Price per hour in $ for its disk. Whether ``hourly`` includes it
            depends on the provider.
    """

    provider: str
    id: str
    name: str
    state: MachineState
    address: Address | None = None
    hourly: float = 0.0
    disk_hourly: float = 0.0


@dataclass(frozen=True)
class EndRequest:
    """An HTTP request that deletes a rented machine; the machine can send it itself.

    Attributes:
        method: ``DELETE`` or ``POST``.
        url: The full URL.
        key: Bearer token; never written to disk or shown.
        body: JSON body, empty for none.
    """

    method: str
    url: str
    key: str = field(repr=False)
    body: str = ""


class Provider(ABC):
    """A provider of machines. Plug-ins: entry point ``agentgym.compute``.

    Methods may wait for the network, and raise :class:`ComputeError` with a message for
    the user. If it is unclear whether a launch worked, the provider does not launch
    again; the caller then searches for the machine by its name.

    Attributes:
        name: The provider's name in the option ``--gpu``.
        key: Environment variable with the API key; empty if no key is needed.
        only_named: Whether its offers are requested only if the user names this
            provider, since its answer is slow.
        has_spot: Whether some of its offers are spot machines.
    """

    name: ClassVar[str]
    key: ClassVar[str] = ""
    only_named: ClassVar[bool] = False
    has_spot: ClassVar[bool] = False

    @abstractmethod
    def check(self) -> None:
        """Check, without a request, that the provider is set up.

        Raises:
            ComputeError: A key or program is missing; the message says how to get it.
        """

    @abstractmethod
    def offers(self) -> list[Offer]:
        """Return the offers with their prices, spot machines included."""

    @abstractmethod
    def launch(self, offer: Offer, name: str, public_key: str) -> Machine:
        """Launch a machine, and return it without waiting until it runs.

        Args:
            offer: The machine type to launch, one of :meth:`offers`.
            name: A unique name that starts with :data:`NAME_PREFIX`.
            public_key: Public SSH key to allow for the login, in OpenSSH's format.

        Raises:
            NoCapacityError: No machine of this type is available.
            UnclearLaunchError: The request was sent but its answer was lost, so a
                machine with this name may exist or appear later.
        """

    @abstractmethod
    def describe(self, machine: Machine) -> Machine:
        """Return the machine's current state; ``GONE`` if it does not exist."""

    @abstractmethod
    def terminate(self, machine: Machine) -> None:
        """Ask the provider to delete a machine; do nothing if it does not exist."""

    @abstractmethod
    def machines(self) -> list[Machine]:
        """Return the existing machines whose name starts with :data:`NAME_PREFIX`."""

    def forget(self, name: str) -> None:
        """Clean up after the machine ``name`` was deleted; ignore errors.

        For example, delete the SSH key that was registered for it.
        """
        return

    def ending(self, machine: Machine) -> EndRequest | None:
        """Return the HTTP request with which a machine can delete itself.

        None if a machine cannot do so.
        """
        return None


PROVIDERS = Registry(
    Provider,
    "provider of GPUs",
    {
        "runpod": "agentgym.plugins.cloud.providers.runpod:RunPod",
        "lambda": "agentgym.plugins.cloud.providers.lambda_cloud:LambdaCloud",
        "sky": "agentgym.plugins.cloud.providers.skypilot:SkyPilot",
    },
    group="agentgym.compute",
)


def providers() -> list[Provider]:
    """Return all providers, even if their key is not set."""
    return [PROVIDERS.get(name) for name in PROVIDERS.names()]


def asked_unnamed() -> list[Provider]:
    """Return the providers to ask for offers if the user does not name one."""
    every = providers()
    return [each for each in every if not (each.only_named or problem(each))]


def require_spot(asked: list[Provider]) -> list[Provider]:
    """Return those of the given providers that have spot machines."""
    found = [provider for provider in asked if provider.has_spot]
    if not found:
        names = " or ".join(each.name for each in asked)
        known = " or --gpu ".join(each.name for each in providers() if each.has_spot)
        raise UnsupportedError(
            f"--spot: {names} has no spot machines that AgentGym can rent. Take --gpu "
            f"{known}, or leave --spot out."
        )
    return found


def problem(provider: Provider) -> str:
    """Return the error message of ``provider.check()``; empty if it is set up."""
    try:
        provider.check()
    except ComputeError as error:
        return str(error)
    return ""


def local_offers() -> list[Offer]:
    """Return one offer per GPU that ``nvidia-smi`` lists here, or one for the CPU."""
    import psutil

    memory = psutil.virtual_memory().total / 1000**3
    words = ["nvidia-smi", "--query-gpu=name,memory.total"]
    words.append("--format=csv,noheader,nounits")
    try:
        lines = subprocess.run(
            words, capture_output=True, text=True, timeout=_NVIDIA_S, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        lines = []
    gpus = [line.rpartition(",") for line in lines]
    found = [
        Offer("local", f"GPU {index}", gpu.strip(), 1, float(mib) / _MIB_A_GB, memory)
        for index, (gpu, _, mib) in enumerate(gpus)
        if mib.strip().replace(".", "", 1).isdigit()
    ]
    return found or [Offer("local", "CPU", "", 0, 0.0, memory)]
