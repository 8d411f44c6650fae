"""Find out whether a run is running, has ended, or was killed."""

import os
from pathlib import Path
from typing import Any

UNREADABLE = "unreadable"


def run_status(run: Path, record: dict[str, Any]) -> str:
    """Return a run's status; "killed" if it is marked as running without a process."""
    status = str(record.get("status", UNREADABLE))
    if status != "running":
        return status
    try:
        os.kill(int((run / ".lock").read_text()), 0)
    except (OSError, ValueError, OverflowError):
        return "killed"
    return status
