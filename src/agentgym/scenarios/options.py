"""Read and change the options in a scenario's reference.

A reference is a scenario's name, maybe with options: ``bfcl?data=wheel.whl``.
"""

import os
from collections.abc import Sequence

DATA = "data"


def has_options(reference: str) -> bool:
    """Return whether a reference is a scenario's name with options after a ``?``."""
    name, mark, _ = reference.partition("?")
    return bool(mark) and name.replace("_", "").isalnum()


def read_options(reference: str, known: Sequence[str] | None = None) -> dict[str, str]:
    """Return the options of a reference, by name."""
    from urllib.parse import parse_qsl

    from agentgym.errors import UsageError

    name, _, query = reference.partition("?")
    found = dict(parse_qsl(query, keep_blank_values=True))
    for key in found if known is not None else ():
        if key not in (known or ()):
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"The scenario {name} has no option {key!r}; {has}.")
    return found


def with_options(reference: str, **given: str) -> str:
    """Return a reference with options added, replaced, or removed by an empty value."""
    from urllib.parse import urlencode

    name = reference.partition("?")[0]
    options = {**read_options(reference), **given}
    options = {key: value for key, value in options.items() if value}
    return f"{name}?{urlencode(options, safe='/,')}" if options else name


def with_absolute_data(reference: str) -> str:
    """Return a reference whose option ``data``, if given, is an absolute path."""
    data = read_options(reference).get(DATA, "")
    path = os.path.abspath(os.path.expanduser(data)) if data else ""
    return with_options(reference, **{DATA: path})
