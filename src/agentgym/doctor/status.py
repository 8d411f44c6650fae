"""Find out whether a run is running, has ended, or was killed."""

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
        os.kill(int((run / ".lock").read_text()), 0)
    except (OSError, ValueError, OverflowError):
        return "killed"
    return status
