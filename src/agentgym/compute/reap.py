"""Finds machines that AgentGym rented and that nobody uses any more, and ends them."""

import fcntl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.compute.base import Machine, Provider
from agentgym.compute.ending import Waits, end
from agentgym.compute.record import MachineRecord, now, remove_key
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
) -> tuple[list[Found], dict[str, str]]:
    """Return the machines that bear AgentGym's name, and who could not be asked.

    Args:
        providers: Those with a key.
        output: The folder of runs.
    """
    records = {record.name: (run, record) for run, record in _records(output)}
    found, problems = [], dict[str, str]()
    for provider in providers:
        try:
            machines = provider.machines()
        except ComputeError as error:
            problems[provider.name] = str(error)
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
    remove_key(found.run.path)
    why = "ended by `agentgym gpu reap`"
    hourly = found.machine.hourly or found.record.hourly
    changes = {"fate": "ended", "ended": now(), "why": why, "hourly": hourly}
    return found.record.changed(id=found.machine.id, **changes).write(found.run.path)


def settle(
    providers: Mapping[str, Provider],
    found: Iterable[Found],
    output: Path,
    waits: Waits,
) -> list[MachineRecord]:
    """Write down which machines of runs are gone though nobody ended them from here.

    Those of runs that go on are left, and those of launches that are so new that their
    machine may still come.

    Args:
        providers: Those that were asked, and answered, by name.
        found: What they have.
        output: The folder of runs.
        waits: How long a machine may take to come.

    Raises:
        ComputeError: A provider does not answer any more.
    """
    there = {each.machine.name for each in found}
    settled = []
    for run, record in _records(output):
        if record.provider not in providers or record.name in there:
            continue
        if not record.is_open or record.age_s < waits.up_s or _is_locked(run):
            continue
        end(providers[record.provider], record.machine, waits)
        remove_key(run.path)
        settled.append(record.found_gone().write(run.path))
    return settled


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
