"""Show results and progress bars in notebooks."""

import sys
import warnings
from pkgutil import resolve_name
from typing import Any

_TEXT = "agentgym.ui.shown:text"
_HTML = "agentgym.ui.shown:html"


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


class Shown:
    """Base class of results that Python and notebooks show as tables."""

    def __repr__(self) -> str:
        return str(resolve_name(_TEXT)(self))

    __str__ = __repr__

    def shown_as(self) -> object:
        """Return the result that is shown instead of this one; by default itself."""
        return self

    def _repr_html_(self) -> str | None:
        """Return the table for a notebook; None if the text is enough."""
        found: str | None = resolve_name(_HTML)(self)
        return found
