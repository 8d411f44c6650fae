"""An extension of Griffe: docstrings of this project as Markdown.

Their references are those of Sphinx (``:class:`~agentgym.Task```), and a line that ends
in two colons announces code.
"""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?(?:[\w.]+\.)?([\w]+)`")
_CODE = re.compile(r"^(\s*)(.*?)::$", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring without the marks of reStructuredText."""
    named = _ROLE.sub(r"`\1`", text)
    return _CODE.sub(lambda line: line[1] + line[2] + ":" * bool(line[2]), named)
