"""Find out whether a run is running, ended or killed, and its rented machine."""

import os
from pathlib import Path
from typing import Any

UNREADABLE = "unreadable"


def run_status(run: Path, record: dict[str, Any]) -> str:
    """Return a run's status; "killed" if it should be running but its process is gone.

    ``record`` is the content of ``run.json``.
    """
    status = str(record.get("status", UNREADABLE))
    if status != "running":
        return status
    try:
        os.kill(int((run / ".lock").read_text(encoding="utf-8")), 0)
    except (OSError, ValueError, OverflowError):
        return "killed"
    return status


def machine_of(run: Path) -> dict[str, Any] | None:
    """Return a run's rented machine: name, provider, cost; None if none was rented.

    The dict's key ``open`` is true if the machine may still run and cost money.
    ``taken_away`` is the number of spot machines that the provider took away.
    """
    if not (run / "machine.json").exists():  # most runs; saves an import
        return None
    from agentgym.compute.record import MachineRecord
    from agentgym.errors import ComputeError

    try:
        record = MachineRecord.read(run)
    except ComputeError:
        unknown = dict.fromkeys(("name", "provider", "cost", "taken_away"))
        return {**unknown, "open": True}
    if record is None:
        return None
    return {
        "name": record.name,
        "provider": record.provider,
        "cost": round(record.total, 2),
        "open": record.is_open,
        "taken_away": record.times_taken,
    }
