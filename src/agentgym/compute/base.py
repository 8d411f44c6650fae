"""The contract of those who have machines: offers, launch, look, terminate.

A rented machine is a place where ``agentgym train`` runs, reached over SSH; no engine
knows of it, and no provider knows which programs run on it.
"""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from agentgym.core.machines import split_address

_ARM = re.compile(r"(?<![A-Za-z])G[HB]\d{3}", re.IGNORECASE)
NAME_PREFIX = "agentgym-"
"""Prefix of the name of every machine that AgentGym rents; no other is ended."""


def in_cents(hourly: float) -> str:
    """Return a price rounded up to a cent: a cap of less would not hold."""
    return f"{math.ceil(round(hourly * 100, 6)) / 100:.2f}"


@dataclass(frozen=True)
class Offer:
    """A kind of machine that can be had.

    Attributes:
        provider: Whose.
        kind: The provider's own name of it, ``NVIDIA RTX A5000`` or ``gpu_1x_a10``.
        gpu: The GPU's name for people; empty for a machine without.
        gpus: How many.
        gpu_memory_gb: Of each, in GB as the provider counts.
        memory_gb: Main memory, 0 if the provider does not report it.
        hourly: Price in $ an hour for the whole machine; 0 for one's own.
        disk_hourly: How much of it is for its disk, where that is billed separately.
        region: Where, empty if the provider chooses.
        is_available: Whether it could be had when it was asked for.
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

    @property
    def is_arm(self) -> bool:
        """Whether its processor is NVIDIA's Grace, an ARM: nothing is built for it."""
        return _ARM.search(f"{self.kind} {self.gpu}") is not None

    @property
    def price(self) -> str:
        """$ an hour in words."""
        disk = ", its disk included" if self.disk_hourly else ""
        return f"${in_cents(self.hourly)} an hour{disk}"

    @property
    def is_sound(self) -> bool:
        """Whether memory and price are numbers that such things can have."""
        numbers = (self.gpu_memory_gb, self.memory_gb, self.hourly)
        return all(math.isfinite(each) and each >= 0 for each in numbers)


class MachineState(StrEnum):
    """The state of a machine.

    ``STOPPED`` is one that can no longer be used and may cost money all the same;
    ``GONE`` one that its provider no longer has, or is about to end.
    """

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    GONE = "gone"


@dataclass(frozen=True)
class Address:
    """Where a machine's SSH server listens.

    Attributes:
        host: Name or address.
        port: Of its SSH server.
        user: The user to log in as; empty for the one in SSH's own settings.
        is_alias: Whether the host is a name that ``ssh`` alone knows, of an entry that
            the provider has written into its settings.
    """

    host: str
    port: int = 22
    user: str = ""
    is_alias: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that ``str()`` returns.

        Raises:
            ValueError: It is written otherwise.
        """
        user, host, port = split_address(text)
        return cls(host, port, user)

    def __str__(self) -> str:
        """As people write it: ``user@host:port``."""
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{user}{host}" + (f":{self.port}" if self.port != 22 else "")


@dataclass(frozen=True)
class Machine:
    """One machine, as its provider last described it.

    Attributes:
        provider: Whose.
        id: The provider's.
        name: Begins with :data:`NAME_PREFIX` if it was rented.
        state: Its state.
        address: Of its SSH server, None as long as it has none.
        hourly: Its real price, in $ an hour; 0 if the provider does not say.
        disk_hourly: $ an hour for its disk, which ``hourly`` may or may not include.
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
    """A request over HTTP by which a machine can be ended, also by itself.

    Attributes:
        method: ``DELETE`` or ``POST``.
        url: Whole.
        key: Sent as a bearer; never written to a disk or shown.
        body: JSON, empty for none.
    """

    method: str
    url: str
    key: str = field(repr=False)
    body: str = ""


class Provider(ABC):
    """A provider of machines. Third parties: entry point ``agentgym.compute``.

    Every method may wait for the network and raises :class:`ComputeError` in plain
    words; none retries a launch whose outcome is unclear (the caller looks for the
    machine by its name).

    Attributes:
        name: Its name for ``--gpu``.
        key: Environment variable of its key; empty if it needs none.
        is_rented: Whether its machines cost money as long as they exist.
        only_named: Whether it is asked for offers only where a user names it, since
            asking takes long.
    """

    name: ClassVar[str]
    key: ClassVar[str] = ""
    is_rented: ClassVar[bool] = True
    only_named: ClassVar[bool] = False

    @abstractmethod
    def check(self) -> None:
        """Check, without a request, that the provider is configured.

        Raises:
            ComputeError: A key or program is missing; the message says how to get it.
        """

    @abstractmethod
    def offers(self) -> list[Offer]:
        """Return the available offers, with prices."""

    @abstractmethod
    def launch(self, offer: Offer, name: str, public_key: str) -> Machine:
        """Ask for a machine.

        Args:
            offer: One of :meth:`offers`.
            name: Begins with :data:`NAME_PREFIX`; unique.
            public_key: In OpenSSH's format, of who may log in.

        Raises:
            NoCapacityError: There is none of this kind at the moment.
            UnclearLaunchError: The request was sent and its answer lost, so that a
                machine of this name may exist or appear later.
        """

    @abstractmethod
    def describe(self, machine: Machine) -> Machine:
        """Return the machine's current state; ``GONE`` if it does not exist."""

    @abstractmethod
    def terminate(self, machine: Machine) -> None:
        """Ask the provider to end a machine for good; a missing one is not an error."""

    @abstractmethod
    def machines(self) -> list[Machine]:
        """Return those that bear AgentGym's name and are not gone."""

    def forget(self, name: str) -> None:
        """Remove the registration of a machine that is gone; ignore a failure.

        The default does nothing: only some providers register more than a machine's
        name.
        """
        return

    def ending(self, machine: Machine) -> EndRequest | None:
        """Return how a machine can end itself; None where nothing is rented."""
        return None
