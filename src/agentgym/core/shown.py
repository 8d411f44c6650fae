"""Shown: let results print as short texts, and as tables in a notebook."""

from pkgutil import resolve_name

_TEXT = "agentgym.ui.shown:text"
_HTML = "agentgym.ui.shown:html"


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
