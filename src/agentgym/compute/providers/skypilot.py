"""SkyPilot, by its command ``sky``: the clouds that it has access to."""

import math
import re
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import yaml

from agentgym.compute.base import (
    NAME_PREFIX,
    Address,
    Machine,
    MachineState,
    Offer,
    Provider,
)
from agentgym.compute.elsewhere.prepare import FOLDER
from agentgym.compute.providers import sky_command
from agentgym.compute.providers.api import understood
from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    NoCapacityError,
    UnclearLaunchError,
    UnreachableError,
)

_SILENT_MINUTES = 30
"""Without a heartbeat of the client, the cluster's job ends."""
_IDLE_MINUTES = 5
"""Without a job, SkyPilot ends the cluster."""
_GUARD = f"""\
# Lasts as long as the client sends heartbeats; SkyPilot ends the machine after it.
sleep {_SILENT_MINUTES * 60}
while find ~/{FOLDER}/runs -name heartbeat -mmin -{_SILENT_MINUTES} | grep -q .
do sleep 60
done
"""
_NO_AUTODOWN = ("hyperbolic", "primeintellect", "verda", "yotta")
"""Clouds on which SkyPilot cannot end a machine by itself."""
_STATES = {
    "PENDING": MachineState.STARTING,
    "INIT": MachineState.STARTING,
    "UP": MachineState.RUNNING,
}
_UNHEALTHY = "unhealthy"


class SkyPilot(Provider):
    """On-demand machines of one GPU, of any cloud that SkyPilot has access to.

    A cluster is of one kind and region, so that its price is the one offered. Its only
    job waits as long as home is heard, and without a job SkyPilot ends the cluster: it
    does not count training, which comes over SSH, nor connections without a terminal.

    Attributes:
        answer_s: How long a look may take; the first one starts SkyPilot's server.
        launch_s: How long a launch is waited for before it is looked for by its name.
    """

    name = "sky"
    only_named = True
    answer_s: ClassVar[float] = 180.0
    launch_s: ClassVar[float] = 240.0

    def check(self) -> None:
        """Check that SkyPilot is installed."""
        sky_command.command()

    def offers(self) -> list[Offer]:
        """Return the cheapest region of each machine, of clouds that can be used."""
        clouds = self._clouds()
        found = sky_command.answer("gpus", "list", timeout_s=self.answer_s)
        with understood(self.name):
            rows = [row for each in found.values() for row in each]
            memory = {
                row["accelerator_name"]: row["device_memory"]
                for row in rows
                if _is_number(row["device_memory"])
            }  # some clouds do not report it, and the same GPU has the same
            return [
                Offer(
                    provider=self.name,
                    kind=f"{row['cloud'].lower()}/{row['instance_type']}",
                    gpu=_readable(row["accelerator_name"]),
                    gpus=1,
                    gpu_memory_gb=float(memory.get(row["accelerator_name"], 0.0)),
                    memory_gb=float(row["memory"]) if _is_number(row["memory"]) else 0,
                    hourly=float(row["price"]),
                    region=str(row["region"]),
                )
                for row in rows
                if row["cloud"].lower() in clouds
                and row["accelerator_count"] == 1
                and _is_text(row["instance_type"])  # others are parts of a machine
                and _is_text(row["region"])
                and _is_number(row["price"])
                and row["price"] > 0
            ]

    def _clouds(self) -> set[str]:
        """Return the clouds that can be used, in small letters.

        Raises:
            ComputeError: There is none.
        """
        found = sky_command.answer("check", timeout_s=self.answer_s)
        with understood(self.name):
            clouds = {
                cloud.lower()
                for enabled in found.values()
                for cloud, abilities in enabled.items()
                if "compute" in abilities
            }
        if not clouds:
            raise ComputeError(sky_command.NO_CLOUD)
        return clouds.difference(_NO_AUTODOWN)

    def launch(self, offer: Offer, name: str, public_key: str) -> Machine:
        """Launch a cluster; see :meth:`Provider.launch`.

        SkyPilot makes a key and an entry for ``ssh`` itself. The remains of a launch
        that failed are ended.
        """
        with tempfile.TemporaryDirectory(prefix=NAME_PREFIX) as folder:
            task = Path(folder) / "task.yaml"
            task.write_text(yaml.safe_dump(_task(offer)))
            try:
                sky_command.run(
                    *("launch", "--cluster", name, "--yes", "--detach-run", "--down"),
                    *("--idle-minutes-to-autostop", str(_IDLE_MINUTES), str(task)),
                    timeout_s=self.launch_s,
                )
            except UnreachableError as error:
                raise UnclearLaunchError(str(error)) from None
            except ComputeRefusedError as error:
                self._clear(name, error)
                if error.code == sky_command.NO_CAPACITY:
                    raise NoCapacityError(str(error)) from None
                raise
        return Machine(self.name, name, name, MachineState.STARTING)

    def _clear(self, name: str, why: ComputeError) -> None:
        """End the remains of a failed launch.

        Raises:
            UnclearLaunchError: That failed too.
        """
        machine = Machine(self.name, name, name, MachineState.STARTING)
        try:
            self.terminate(machine)
            left = self.describe(machine).state is not MachineState.GONE
        except ComputeError as error:
            raise UnclearLaunchError(f"{why} And then: {error}") from None
        if left:
            raise UnclearLaunchError(f"{why} And a part of it is still there.")

    def describe(self, machine: Machine) -> Machine:
        """Return a cluster as it is now; this renews its entry for ``ssh``."""
        for found in self._status(_safe(machine.name)):
            if found.name == machine.name:
                return found
        return Machine(self.name, machine.id, machine.name, MachineState.GONE)

    def terminate(self, machine: Machine) -> None:
        """Tear a cluster down, also one that is being launched."""
        sky_command.run("down", "--yes", _safe(machine.name), timeout_s=self.answer_s)

    def machines(self) -> list[Machine]:
        """Return the user's clusters that bear AgentGym's name."""
        return [each for each in self._status() if each.name.startswith(NAME_PREFIX)]

    def _status(self, *names: str) -> list[Machine]:
        words = ("status", "--refresh", *names)
        found = sky_command.answer(*words, timeout_s=self.answer_s)
        with understood(self.name):
            if not isinstance(found, list):
                raise TypeError("no list of clusters")
            return [self._machine(each) for each in found]

    def _machine(self, found: dict[str, Any]) -> Machine:
        name = str(found["name"])
        state = _STATES.get(str(found["status"]), MachineState.STOPPED)
        if state is MachineState.STARTING and found.get("init_kind") == _UNHEALTHY:
            state = MachineState.STOPPED
        is_up = state is MachineState.RUNNING
        address = Address(name, is_alias=True) if is_up else None
        return Machine(self.name, name, name, state, address)


def _task(offer: Offer) -> dict[str, Any]:
    """Return the task to launch: just this machine, and its guard."""
    cloud, _, kind = offer.kind.partition("/")
    machine = {"cloud": cloud, "region": offer.region, "instance_type": kind}
    return {
        "name": "agentgym",
        "resources": {**machine, "use_spot": False},
        "run": _GUARD,
    }


def _readable(gpu: str) -> str:
    """Return SkyPilot's name of a GPU as others write it: ``RTX 6000 Ada``."""
    return re.sub(r"^RTX(?=\d|PRO)", "RTX ", gpu).replace("-", " ")


def _safe(name: str) -> str:
    """Return a cluster's name, which ``sky`` would take for a pattern.

    Raises:
        ComputeError: It is none of AgentGym's.
    """
    if not re.fullmatch(rf"{NAME_PREFIX}[a-z0-9-]+", name):
        raise ComputeError(f"{name!r} is not the name of a cluster of AgentGym's.")
    return name


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
