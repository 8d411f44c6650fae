"""Build right calls from the argument values that the benchmark accepts."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym.core.needs import NeededCall
from agentgym.scenarios.bfcl.entries import Entry
from agentgym.scenarios.bfcl.functions import language_of, tool_name

_MOST_OTHERS = 64
_LEFT_OUT = ""
"""An accepted value with the meaning that the argument may be omitted."""


def right_calls(entry: Entry, *, brief: bool = False) -> list[NeededCall]:
    """Return the calls that an entry (one test case) needs; [] if no function fits.

    The benchmark also accepts texts that differ in spaces or case. So all arguments are
    in ``NeededCall.by_outcome``: any value is right if the benchmark accepts the call.

    Args:
        entry: The entry.
        brief: Whether to omit every optional argument.
    """
    return [_right_call(entry, answer, brief) for answer in entry.answers]


def _right_call(entry: Entry, answer: Mapping[str, Any], brief: bool) -> NeededCall:
    [(name, accepted)] = answer.items()
    function = next(f for f in entry.functions if f["name"] == name)
    types = function["parameters"]["properties"]
    language = language_of(entry.category)
    choices = {
        argument: values
        for argument, each in accepted.items()
        if not (brief and _LEFT_OUT in each)
        and (values := [*_values(each, types.get(argument, {}), language)])
    }
    first, *others = (
        dict(zip(choices, picked, strict=True))
        for picked in itertools.islice(
            itertools.product(*choices.values()), _MOST_OTHERS
        )
    )
    return NeededCall(tool_name(name), first, others, frozenset(accepted))


def _values(
    accepted: Sequence[Any], schema: Mapping[str, Any], language: str
) -> Iterator[Any]:
    """Yield the values of an argument that the benchmark accepts.

    They are source text if the functions' language is Java or JavaScript.
    """
    for value in accepted:
        if value == _LEFT_OUT:
            continue
        plain = _plain(value)
        match language:
            case "java":
                yield _java(plain, schema)
            case "javascript":
                yield _javascript(plain, str(schema.get("type")))
            case _:
                yield plain


def _plain(value: Any) -> Any:
    """Return an accepted value in which each object has one value per key.

    In the benchmark, an object has a list of accepted values per key; the first of them
    is used.
    """
    if isinstance(value, list):
        return [_plain(part) if isinstance(part, dict) else part for part in value]
    if not isinstance(value, dict):
        return value
    picked = {
        key: next((v for v in each if v != _LEFT_OUT), _LEFT_OUT)
        if isinstance(each, list)
        else each
        for key, each in value.items()
    }
    return {key: each for key, each in picked.items() if each != _LEFT_OUT}


def _java(value: Any, schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value}{ {'long': 'L', 'float': 'f'}.get(str(kind), '') }"
        case list():
            inner = schema.get("items", {})
            parts = [_java(part, inner) for part in value]
            if kind == "Array":
                return f"new Object[]{{{', '.join(parts)}}}"
            if inner.get("type") in ("String", "char"):
                parts = [f'"{part}"' for part in parts]
            return f"new ArrayList<>(Arrays.asList({', '.join(parts)}))"
        case dict():
            puts = (f'put("{k}", {_literal(v)});' for k, v in value.items())
            return f"new HashMap<String, Object>() {{{{ {' '.join(puts)} }}}}"
    return str(value)


def _javascript(value: Any, kind: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() if kind == "Bigint":
            return f"{value}n"
        case list():
            return f"[{', '.join(map(_literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{k}: {_literal(v)}' for k, v in value.items())}}}"
    return str(value)


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
