"""Write grammar rules for parts of JSON schemas, for formats that are not JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""llguidance's settings for JSON in the style of ``json.dumps``, as chat templates
write it."""
_BOUNDS = (
    *("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "multipleOf",
)
_BRANCHES = ("anyOf", "oneOf")


def alternatives(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Split a JSON schema into alternatives that have at most one type each."""
    if not isinstance(schema, Mapping):
        yield {}
        return
    if "const" in schema:
        yield {"enum": [schema["const"]]}
        return
    branches = [each for key in _BRANCHES for each in schema.get(key) or ()]
    several = schema.get("allOf") or ()
    if len(several) == 1:
        branches += several
    if branches and not schema.get("enum"):
        for branch in branches:
            yield from alternatives(branch)
    elif isinstance(kinds := schema.get("type"), list) and not schema.get("enum"):
        for kind in kinds:
            yield {**schema, "type": kind}
    elif len(several) > 1:
        yield {}
    else:
        yield schema


def number_rule(schema: Mapping[str, Any]) -> str:
    """Return the body of a grammar rule for a number within the schema's bounds."""
    bounds = {key: schema[key] for key in _BOUNDS if key in schema}
    return f"%json {json.dumps({**bounds, 'x-guidance': STYLE})}"


def ordered(name: str, items: Sequence[tuple[str, bool]]) -> list[str]:
    """Return the grammar rules for items in fixed order, separated by commas.

    ``name`` is the name of the first rule. Each item is a pair: the body of its rule,
    and whether it is required.
    """
    rules, starts = [f'{name}_r{len(items)}: ""'], []
    for at, (item, is_required) in enumerate(items):
        rules.append(f"{name}_i{at}: {item}")
        part = f'", " {name}_i{at}'
        part = part if is_required else f"({part})?"
        rules.append(f"{name}_r{at}: {part} {name}_r{at + 1}")
    for at, (_, is_required) in enumerate(items):
        starts.append(f"{name}_i{at} {name}_r{at + 1}")
        if is_required:
            break
    else:
        starts.append('""')
    return [f"{name}: {' | '.join(starts)}", *rules]
