"""What a benchmark prints beside its figures: where and when they were taken."""

import os
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path


def machine() -> str:
    """Return processor, cores, memory, Python and date in one line."""
    info = Path("/proc/cpuinfo")
    names = (
        [
            line.split(":")[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        if info.exists()
        else [platform.processor()]
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return (
        f"{names[0]}, {cores} cores, {memory:.0f} GiB, Python "
        f"{platform.python_version()}, torch {version('torch')}, {date.today()}"
    )
