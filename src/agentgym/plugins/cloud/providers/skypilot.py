"""SkyPilot: rent machines in any cloud that SkyPilot's command ``sky`` can use."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import yaml

from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    NoCapacityError,
    UnclearLaunchError,
    UnreachableError,
)
from agentgym.install import install_command
from agentgym.plugins.cloud.base import (
    NAME_PREFIX,
    Address,
    Machine,
    MachineState,
    Offer,
    Provider,
)
from agentgym.plugins.cloud.install import FOLDER
from agentgym.plugins.cloud.providers.api import shortened, understood

COMMAND = "sky"
_NO_CAPACITY = "ResourcesUnavailableError"
_NO_CLOUD = (
    "SkyPilot has access to no cloud: `sky check` lists the needs of each, and "
    "`pip install 'skypilot[aws]'` (or another name) installs the packages of one."
)
_NO_ACCESS = "NoCloudAccessError"
_RTX = re.compile(r"^RTX(?=\d|PRO)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)): ?", re.MULTILINE)
_SILENT_MINUTES = 30
"""Minutes without the client's heartbeat after which the cluster's job ends."""
_IDLE_MINUTES = 5
"""Minutes without a job after which SkyPilot ends the cluster."""
_GUARD = f"""\
# Lasts as long as the client sends heartbeats; SkyPilot ends the machine after it.
sleep {_SILENT_MINUTES * 60}
while find ~/{FOLDER}/runs -name heartbeat -mmin -{_SILENT_MINUTES} | grep -q .
do sleep 60
done
"""
_NO_AUTODOWN = ("hyperbolic", "primeintellect", "verda", "yotta")
"""Clouds on which SkyPilot cannot end a machine automatically."""
_STATES = {
    "PENDING": MachineState.STARTING,
    "INIT": MachineState.STARTING,
    "UP": MachineState.RUNNING,
}
_UNHEALTHY = "unhealthy"
_GIB = 1.073741824
"""GB per GiB; SkyPilot counts a GPU's memory in GiB."""


class SkyPilot(Provider):
    """Rents machines with one GPU, on demand or spot, as clusters of SkyPilot."""

    name = "sky"
    only_named = True
    has_spot = True
    answer_s: ClassVar[float] = 180.0
    launch_s: ClassVar[float] = 240.0

    def check(self) -> None:
        """Check that SkyPilot is installed; raise ComputeError if it is not."""
        _command()

    def offers(self) -> list[Offer]:
        """Return the offers of all machine types with one GPU, from enabled clouds."""
        clouds, found = self._clouds(), self._answer("gpus", "list")
        with understood(self.name):
            rows = [row for each in found.values() for row in each]
            memory = {
                row["accelerator_name"]: round(row["device_memory"] * _GIB, 1)
                for row in rows
                if _is_number(row["device_memory"])
            }  # by GPU, since some clouds do not report the memory
            return [
                Offer(
                    **price,
                    provider=self.name,
                    kind=f"{row['cloud'].lower()}/{row['instance_type']}",
                    gpu=_RTX.sub("RTX ", row["accelerator_name"]).replace("-", " "),
                    gpus=1,
                    gpu_memory_gb=float(memory.get(row["accelerator_name"], 0.0)),
                    memory_gb=float(row["memory"]) if _is_number(row["memory"]) else 0,
                    region=str(row["region"]),
                )
                for row in rows
                if row["cloud"].lower() in clouds
                and row["accelerator_count"] == 1
                and isinstance(row["instance_type"], str)  # else part of a machine
                and isinstance(row["region"], str)
                for price in _prices(row)
            ]

    def _clouds(self) -> set[str]:
        """Return the enabled clouds in which SkyPilot can end idle machines."""
        found = self._answer("check")
        with understood(self.name):
            clouds = {
                cloud.lower()
                for enabled in found.values()
                for cloud, abilities in enabled.items()
                if "compute" in abilities
            }
        if not clouds:
            raise ComputeError(_NO_CLOUD)
        return clouds.difference(_NO_AUTODOWN)

    def launch(self, offer: Offer, name: str, public_key: str) -> Machine:
        """Launch a cluster; SkyPilot makes a key, and an entry in SSH's settings."""
        cloud, _, kind = offer.kind.partition("/")
        machine = {"cloud": cloud, "region": offer.region, "instance_type": kind}
        resources = {**machine, "use_spot": offer.is_spot}
        task = {"name": "agentgym", "resources": resources, "run": _GUARD}
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(task, file)
            file.flush()
            try:
                _run(
                    *("launch", "--cluster", name, "--yes", "--detach-run", "--down"),
                    *("--idle-minutes-to-autostop", str(_IDLE_MINUTES), file.name),
                    timeout_s=self.launch_s,
                )
            except UnreachableError as error:
                raise UnclearLaunchError(str(error)) from None
            except ComputeRefusedError as error:
                self._clear(name, error)
                if error.code == _NO_CAPACITY:
                    raise NoCapacityError(str(error)) from None
                raise
        return Machine(self.name, name, name, MachineState.STARTING)

    def _clear(self, name: str, why: ComputeError) -> None:
        """Remove the parts of a cluster whose launch failed with the error ``why``."""
        machine = Machine(self.name, name, name, MachineState.STARTING)
        try:
            self.terminate(machine)
            left = self.describe(machine).state is not MachineState.GONE
        except ComputeError as error:
            raise UnclearLaunchError(f"{why} And then: {error}") from None
        if left:
            raise UnclearLaunchError(f"{why} And a part of it is still there.")

    def describe(self, machine: Machine) -> Machine:
        """Return a cluster with its current state; update its entry for SSH."""
        gone = Machine(self.name, machine.id, machine.name, MachineState.GONE)
        found = {each.name: each for each in self._status(_safe(machine.name))}
        return found.get(machine.name, gone)

    def terminate(self, machine: Machine) -> None:
        """Tear down a cluster, even if it is still being launched."""
        _run("down", "--yes", _safe(machine.name), timeout_s=self.answer_s)

    def machines(self) -> list[Machine]:
        """Return the existing clusters whose name starts with AgentGym's prefix."""
        return [each for each in self._status() if each.name.startswith(NAME_PREFIX)]

    def _status(self, *names: str) -> list[Machine]:
        found = self._answer("status", "--refresh", *names)
        with understood(self.name):
            if not isinstance(found, list):
                raise TypeError("no list of clusters")
            return [self._machine(each) for each in found]

    def _machine(self, found: dict[str, Any]) -> Machine:
        name = str(found["name"])
        state = _STATES.get(str(found["status"]), MachineState.STOPPED)
        if state is MachineState.STARTING and found.get("init_kind") == _UNHEALTHY:
            state = MachineState.STOPPED
        address = Address(name) if state is MachineState.RUNNING else None
        return Machine(self.name, name, name, state, address)

    def _answer(self, *words: str) -> Any:
        """Run ``sky``, twice if it hangs, and return the JSON that it prints."""
        whole = (*words, "--output", "json")
        try:
            said = _run(*whole, timeout_s=self.answer_s)
        except UnreachableError:
            said = _run(*whole, timeout_s=self.answer_s)
        for start in re.finditer(r"^[\[{]", said, re.MULTILINE):  # after other text
            try:
                return json.loads(said[start.start() :])
            except ValueError:
                continue
        raise ComputeRefusedError(
            f"`sky {words[0]}` printed no JSON but {shortened(said)!r}. Is it "
            "SkyPilot's, of version 0.14?",
            0,
        )


def _prices(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the price fields of a machine type's offers: on demand, then spot."""
    price, spot = row["price"], row["spot_price"]
    if not (_is_number(price) and price > 0):
        return []
    found: list[dict[str, Any]] = [{"hourly": float(price)}]
    if _is_number(spot) and 0 < spot <= price:
        more = {"is_spot": True, "on_demand_hourly": float(price)}
        found.append({"hourly": float(spot), **more})
    return found


def _safe(name: str) -> str:
    """Check a cluster's name, which ``sky`` might read as a pattern of names."""
    if not re.fullmatch(rf"{NAME_PREFIX}[a-z0-9-]+", name):
        raise ComputeError(f"{name!r} is not the name of a cluster of AgentGym's.")
    return name


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _command() -> str:
    """Return the path of the program ``sky``, on PATH or next to this Python."""
    folder = Path(sys.executable).parent
    found = shutil.which(COMMAND) or shutil.which(COMMAND, path=folder)
    if found is None:
        raise ComputeError(
            "--gpu sky needs SkyPilot, whose command `sky` was not found. Install it "
            f"with: {install_command('sky')}"
        )
    return found


def _run(*words: str, timeout_s: float) -> str:
    """Run ``sky`` with the arguments ``words``, and return its output."""
    # Files, since the command may start SkyPilot's server, which would keep pipes open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [_command(), *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={"SKYPILOT_DISABLE_USAGE_COLLECTION": "1", **os.environ},
            start_new_session=True,  # Ctrl-C in the terminal is not for it
        )
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise UnreachableError(
                f"`sky {words[0]}` gave no answer in {timeout_s:.0f} seconds. Does "
                "`sky api info` find SkyPilot's server? `sky api stop` ends one that "
                "hangs; the next command starts another."
            ) from None
        finally:
            process.kill()
            process.wait()
        said, failed = _text(out), _text(err)
    if status:
        raise _explained(words, status, failed.strip() or said)
    return said


def _text(file: Any) -> str:
    file.seek(0)
    return _COLOURS.sub("", file.read().decode(errors="replace"))


def _explained(words: tuple[str, ...], status: int, said: str) -> ComputeRefusedError:
    """Return the exception for a failed command, with the last error in its output."""
    found = [*_ERROR.finditer(said)]
    code = found[-1][1] if found else ""
    if code == _NO_ACCESS:
        return ComputeRefusedError(_NO_CLOUD, status, code)
    message = shortened(said[found[-1].end() :] if found else said)
    return ComputeRefusedError(
        f"`sky {words[0]}` failed: {message or f'exit code {status}'}.", status, code
    )
