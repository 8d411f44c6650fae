"""Find and end rented machines that are not used by a run any more."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgym.errors import ComputeError
from agentgym.plugins.cloud.base import Machine, MachineState, Provider
from agentgym.plugins.cloud.ending import Waits, end
from agentgym.plugins.cloud.record import MachineRecord, now, remove_key
from agentgym.plugins.cloud.run_server import is_locked
from agentgym.train.run_folder import RunFolder, list_runs


@dataclass(frozen=True)
class Found:
    """An existing rented machine, with its run and record if they are known.

    Attributes:
        machine: The machine.
        run: The run that rented it; None if it was not found in the output folder.
        record: The record ``machine.json`` of that run, or None.
        is_used: Whether another process is training that run now.
    """

    machine: Machine
    run: RunFolder | None
    record: MachineRecord | None
    is_used: bool

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
    providers: Iterable[Provider], output: Path
) -> tuple[list[Found], dict[str, str]]:
    """Return the rented machines that exist, and error messages by provider's name."""
    records = {record.name: (run, record) for run, record in _records(output)}
    found, problems = [], dict[str, str]()
    for provider in providers:
        try:
            machines = provider.machines()
            machines += _unlisted(provider, machines, records.values())
        except ComputeError as error:
            problems[provider.name] = str(error)
            continue
        for machine in machines:
            run, record = records.get(machine.name, (None, None))
            is_used = run is not None and _is_training(run)
            found.append(Found(machine, run, record, is_used))
    return found, problems


def _unlisted(
    provider: Provider,
    listed: Iterable[Machine],
    records: Iterable[tuple[RunFolder, MachineRecord]],
) -> list[Machine]:
    """Return recorded machines that exist, although the provider did not list them."""
    names = {machine.name for machine in listed}
    described = [
        provider.describe(record.machine)
        for _, record in records
        if record.provider == provider.name
        and record.id
        and record.is_open
        and record.name not in names
    ]
    return [each for each in described if each.state is not MachineState.GONE]


@dataclass(frozen=True)
class Awaited:
    """A machine that a run has launched, and that its provider does not list yet."""

    run: RunFolder
    record: MachineRecord

    def words(self, waits: Waits) -> str:
        """Describe the launch, and the time within which the machine may appear."""
        reasons = {"asked": "no answer to the launch was recorded"}
        reasons |= {"unclear": "the launch had no clear answer"}
        why = reasons.get(self.record.fate, "it was launched")
        left = max(1, math.ceil((waits.up_s - self.record.age_s) / 60))
        return (
            f"{self.record.provider} does not list {self.record.name} "
            f"({self.run.path.name}): {why} {self.record.age_s / 60:.0f} minutes ago. "
            f"It may still come. Look again in {left} minutes: agentgym gpu reap"
        )


def look(
    providers: Mapping[str, Provider],
    output: Path,
    waits: Waits,
    *,
    name: str | None = None,
    report: Callable[[str], None] = lambda words: None,
) -> tuple[list[Found], list[Awaited], dict[str, str]]:
    """List the rented machines, and wait for launched machines to be listed.

    A provider may list a new machine late. So the lists are read again, at most
    ``waits.looks`` times, while a launched machine is missing.
    """
    for number in range(waits.looks):
        if number:
            time.sleep(waits.look_s)
        found, problems = find_machines(providers.values(), output)
        missed = [
            each
            for each in _awaited(found, output, waits)
            if each.record.provider in providers.keys() - problems.keys()
            and name in (None, each.record.name)
        ]
        if not missed:
            break
        if not number:
            names = ", ".join(each.record.name for each in missed)
            report(f"Not listed so far: {names}. Looking again for a while.")
    return found, missed, problems


def _awaited(found: Iterable[Found], output: Path, waits: Waits) -> list[Awaited]:
    """Return recently launched machines that are not in ``found``."""
    there = {each.machine.name for each in found}
    return [
        Awaited(run, record)
        for run, record in _records(output)
        if record.is_open
        and not record.address
        and record.age_s < waits.up_s
        and record.name not in there
        and not _is_training(run)
    ]


def reap(found: Found, provider: Provider, waits: Waits) -> MachineRecord | None:
    """End a machine; update and return its record, or None if it has no record."""
    end(provider, found.machine, waits)
    if found.run is None or found.record is None:
        return None
    remove_key(found.run.path)
    ended = found.record.changed(
        id=found.machine.id,
        fate="ended",
        ended=now(),
        why="ended by `agentgym gpu reap`",
        hourly=found.record.billed(found.machine),
    )
    return ended.write(found.run.path)


def settle(
    providers: Mapping[str, Provider],
    found: Iterable[Found],
    output: Path,
    waits: Waits,
) -> list[MachineRecord]:
    """Update the records of machines that do not exist any more; return these records.

    Runs that are training are skipped, and so are recent launches, since their machine
    may be listed late.
    """
    there = {each.machine.name for each in found}
    settled = []
    for run, record in _records(output):
        if record.provider not in providers or record.name in there:
            continue
        if not record.is_open or record.age_s < waits.up_s or _is_training(run):
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


def _is_training(run: RunFolder) -> bool:
    """Return whether another process is training this run."""
    return is_locked(run.path / ".lock")
