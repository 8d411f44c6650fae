"""Find out whether a notebook runs this code, and show progress bars in one."""

import sys
import warnings
from typing import Any


def in_notebook() -> bool:
    """Return whether this code runs in a notebook's kernel."""
    if (ipython := sys.modules.get("IPython")) is None:
        return False
    shell = ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def notebook_bar(name: str, total: int) -> Any:
    """Return tqdm's progress bar for rollouts."""
    with warnings.catch_warnings(action="ignore"):  # on ipywidgets that are missing
        from tqdm.auto import tqdm
    return tqdm(total=total, desc=name, unit=" rollouts", file=sys.stdout)
