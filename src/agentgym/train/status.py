"""Status of a run: running, ended or killed, and the cost of its rented machine."""

import os
from pathlib import Path
from typing import Any

UNREADABLE = "unreadable"


def run_status(run: Path, record: dict[str, Any]) -> str:
    """Return a run's status; "killed" if a running one's process is gone."""
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
    found: dict[str, Any] | None = _about(run, "machine_of")
    return found


def bill(run: Path) -> str:
    """Describe a run's rented machine and its cost; "" if none was rented."""
    return _about(run, "bill") or ""


def _about(run: Path, function: str) -> Any:
    if not (run / "machine.json").exists():  # most runs; saves imports
        return None
    from agentgym.plugins import registered

    return registered("agentgym.machines", function)(run)
