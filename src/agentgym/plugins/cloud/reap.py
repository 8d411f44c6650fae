"""Find and end rented machines that are not used by a run any more."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from agentgym.errors import ComputeError
from agentgym.plugins.cloud.base import Machine, Provider
from agentgym.plugins.cloud.lease import Waits, end, find, remove_key
from agentgym.plugins.cloud.record import MachineRecord, now
from agentgym.plugins.cloud.run_server import is_locked
from agentgym.train.run_folder import RunFolder, list_runs
from agentgym.ui.layout import headed


@dataclass(frozen=True)
class Found:
    """An existing rented machine, with its run and record if they are known."""

    machine: Machine
    run: RunFolder | None = None
    record: MachineRecord | None = None

    @property
    def is_used(self) -> bool:
        """Whether a process trains the machine's run."""
        return self.run is not None and _is_training(self.run)

    def as_json(self) -> dict[str, Any]:
        """Return the machine's state, price, cost and run as a JSON object."""
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
    providers: Iterable[Provider], output: Path, waits: Waits
) -> tuple[list[Found], list[str], dict[str, str]]:
    """Return the rented machines that exist, remarks, and errors by provider's name.

    Records of machines that do not exist any more are updated; the remarks name them,
    and recent launches whose machine may still come.
    """
    records = {record.name: (run, record) for run, record in _records(output)}
    found, remarks, problems = list[Found](), list[str](), dict[str, str]()
    for provider in providers:
        try:
            machines = provider.machines()
            names = {machine.name for machine in machines}
            for run, record in records.values():
                is_its = record.provider == provider.name and record.is_open
                if not is_its or record.name in names or _is_training(run):
                    continue
                is_new = record.age_s < waits.up_s
                if is_new and (machine := find(provider, record.name, waits)):
                    machines.append(machine)
                elif not is_new:
                    end(provider, record.machine, waits)
                    remove_key(run.path)
                    remarks.append(record.found_gone().write(run.path).words())
                elif not record.address:
                    remarks.append(_awaited(run, record, waits))
        except ComputeError as error:
            problems[provider.name] = str(error)
            continue
        found += [Found(each, *records.get(each.name, ())) for each in machines]
    return found, remarks, problems


def _awaited(run: RunFolder, record: MachineRecord, waits: Waits) -> str:
    """Describe a recent launch, and the time within which its machine may appear."""
    left = max(1, math.ceil((waits.up_s - record.age_s) / 60))
    return (
        f"{record.provider} does not list {record.name} ({run.path.name}), which was "
        f"requested {record.age_s / 60:.0f} minutes ago. It may still come. Look again "
        f"in {left} minutes: agentgym gpu reap"
    )


def reap(found: Found, provider: Provider, waits: Waits) -> None:
    """End a machine, and update its record, if it has one."""
    end(provider, found.machine, waits)
    if found.run is not None and found.record is not None:
        remove_key(found.run.path)
        found.record.changed(
            id=found.machine.id,
            fate="ended",
            ended=now(),
            why="ended by `agentgym gpu reap`",
            hourly=found.record.billed(found.machine),
        ).write(found.run.path)


def machines_view(found: Sequence[Found]) -> RenderableType:
    """Return a table of rented machines, with cost and run of each."""
    table, none = headed(2), Text("-", "dim")
    for name in ("machine", "of", "$ an hour", "so far", "run"):
        table.add_column(name, overflow="fold")
    for each in found:
        run = "not of this folder" if each.run is None else each.run.path.name
        table.add_row(
            each.machine.name,
            each.machine.provider,
            f"{each.machine.hourly:.2f}" if each.machine.hourly else none,
            none if each.record is None else f"${each.record.spent:.2f}",
            f"{run} (going on)" if each.is_used else run,
        )
    return table


def _records(output: Path) -> Iterable[tuple[RunFolder, MachineRecord]]:
    for run in list_runs(output):
        try:
            record = MachineRecord.read(run.path)
        except ComputeError:
            continue
        if record is not None:
            yield run, record


def _is_training(run: RunFolder) -> bool:
    """Return whether another process is training this run."""
    return is_locked(run.path / ".lock")
