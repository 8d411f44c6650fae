"""Finds machines that AgentGym rented and that nobody uses any more, and ends them."""

import fcntl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.compute.base import Machine, Provider
from agentgym.compute.ending import Waits, end
from agentgym.compute.record import MachineRecord, now
from agentgym.errors import ComputeError
from agentgym.train.run_folder import RunFolder, list_runs


@dataclass(frozen=True)
class Found:
    """A rented machine that is there.

    Attributes:
        machine: As its provider describes it.
        run: The run that it was rented for; None if that is not in this folder of runs.
        record: What is written of it there.
        is_used: Whether that run is going on, in another process.
    """

    machine: Machine
    run: RunFolder | None
    record: MachineRecord | None
    is_used: bool

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "name": self.machine.name,
            "provider": self.machine.provider,
            "id": self.machine.id,
            "state": self.machine.state.value,
            "hourly": self.machine.hourly,
            "spent": None if self.record is None else round(self.record.spent, 2),
            "run": None if self.run is None else str(self.run.path),
            "used": self.is_used,
        }


def find_machines(
    providers: Iterable[Provider], output: Path
) -> tuple[list[Found], list[str]]:
    """Return the machines that bear AgentGym's name, and what could not be asked.

    Args:
        providers: Those with a key.
        output: The folder of runs.
    """
    records = {record.name: (run, record) for run, record in _records(output)}
    found, problems = [], []
    for provider in providers:
        try:
            machines = provider.machines()
        except ComputeError as error:
            problems.append(str(error))
            continue
        for machine in machines:
            run, record = records.get(machine.name, (None, None))
            is_used = run is not None and _is_locked(run)
            found.append(Found(machine, run, record, is_used))
    return found, problems


def reap(found: Found, provider: Provider, waits: Waits) -> MachineRecord | None:
    """End a machine; return its run's record, which says so, if there is one.

    Raises:
        ComputeError: It could not be ended.
    """
    end(provider, found.machine, waits)
    if found.run is None or found.record is None:
        return None
    why = "ended by `agentgym gpu reap`"
    hourly = found.machine.hourly or found.record.hourly
    changes = {"fate": "ended", "ended": now(), "why": why, "hourly": hourly}
    return found.record.changed(id=found.machine.id, **changes).write(found.run.path)


def _records(output: Path) -> Iterable[tuple[RunFolder, MachineRecord]]:
    for run in list_runs(output):
        try:
            record = MachineRecord.read(run.path)
        except ComputeError:
            continue
        if record is not None:
            yield run, record


def _is_locked(run: RunFolder) -> bool:
    """Say whether another process trains in a run's folder."""
    try:
        with (run.path / ".lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
