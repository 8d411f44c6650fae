"""Write grammar rules for a tool's arguments, in formats that are not JSON.

:class:`TagArguments` is for the tool call format xml, :class:`PythonArguments` for the
format pythonic. Both leave a text's ``pattern`` and ``format`` out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agentgym.core.json_schema import referred

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
    """Return the grammar rules for items in fixed order, separated by commas."""
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


class _ArgumentRules:
    """The state of a writer of grammar rules.

    Args:
        name: Name of the first rule; the names of the other rules begin with it.
        schema: The JSON schema of the arguments.
    """

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        self._name = name
        self._root = schema
        self._rules: list[str] = []


_CLOSE, _NEXT, _END = r"<\/parameter>\s*", "<parameter=", r"<\/function>"
_OTHERS = {_NEXT: rf"({_END}|<\/tool_call>)", _END: rf"({_NEXT}|<\/tool_call>)"}
_DEEPEST = 8
_TAG_WORDS: Mapping[str, str] = {
    "boolean": '"true" | "false" | "True" | "False"', "null": '"null" | "None"',
}  # fmt: skip
"""Grammar rule bodies for constants. Some chat templates write them as in Python, not
as in JSON."""


class TagArguments(_ArgumentRules):
    """Writes the grammar rules for one tool's arguments, up to its closing tag.

    A string is written without quotes or escapes. It ends at the first closing tag that
    is followed by another tag, as in the parser. Other values are written as JSON.
    """

    def rules(self) -> list[str]:
        """Return the grammar's rules, the rule for the arguments first."""
        properties = self._root.get("properties")
        if not isinstance(properties, Mapping):
            return self._unknown()
        required = self._root.get("required") or ()
        items = [
            (key, value, key in required)
            for key, value in properties.items()
            if key and key == key.strip() and not set(key) & set(">\n")
        ]
        made = [f"{self._name}: NL? {self._name}_s0"]
        for at in range(len(items) + 1):
            after = []
            for place in range(at, len(items)):
                after.append(f"{self._name}_p{place}")
                if items[place][2]:
                    break
            ends = not any(is_required for _, _, is_required in items[at:])
            follow = _Follow(
                f"{self._name}_s{at}", f"{self._name}_n{at}" if after else "", ends
            )
            made.append(f"{follow.tag}: {follow.ways()}")
            if after:
                made.append(f"{follow.key}: {' | '.join(after)}")
            if at:
                key, value, _ = items[at - 1]
                opened = json.dumps(f"{key}>", ensure_ascii=False)
                ways = " | ".join(self._values(value, follow))
                made.append(f"{self._name}_p{at - 1}: {opened} ({ways})")
        return [*made, *self._rules]

    def _unknown(self) -> list[str]:
        """Return rules for a tool without named parameters: any names, any values."""
        follow = _Follow(f"{self._name}_s", f"{self._name}_n", ends=True)
        texts = " | ".join(self._texts({}, follow))
        return [
            f"{self._name}: NL? {follow.tag}",
            f"{follow.tag}: {follow.ways()}",
            f'{follow.key}: /[^>\\s]+/ ">" ({texts})',
            *self._rules,
        ]

    def _values(self, schema: Any, follow: "_Follow") -> Iterator[str]:
        """Yield a rule's body for each kind of value that a schema allows."""
        found = list(self._resolved(schema, 0))
        texts = [each for each in found if each.get("type", "string") == "string"]
        free = [each for each in texts if "enum" not in each]
        if free:  # any string is valid
            yield from self._texts(free[0] if len(found) == 1 else {}, follow)
            return
        for each in found:
            yield f'NL? ({self._value(each)}) NL? "</parameter>" NL? {follow.tag}'

    def _texts(self, schema: Mapping[str, Any], follow: "_Follow") -> Iterator[str]:
        """Yield the body of a rule for a string, one for each possible next tag."""
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        count = f"{{{least},{'' if most is None else most}}}"
        line = r"\n" if least else r"\n?"  # part of the format, not of the string
        ends = {_NEXT: bool(follow.key), _END: follow.ends}
        for end in (each for each, is_allowed in ends.items() if is_allowed):
            name = f"{self._name}_t{len(self._rules)}"
            whole = rf"/{line}(.|\n){count}{line}{_CLOSE}{end}/"
            cut = rf"/(.|\n)*{_CLOSE}{_OTHERS[end]}(.|\n)*/"
            self._rules.append(f"{name}[lazy]: {whole} & ~{cut}")
            yield f"{name} {follow.key}" if end == _NEXT else name

    def _resolved(self, schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
        for each in alternatives(schema):
            if isinstance(each.get("$ref"), str) and depth < _DEEPEST:
                found = referred(each["$ref"], self._root)
                yield from self._resolved(found, depth + 1)
            else:
                yield each

    def _value(self, schema: Mapping[str, Any]) -> str:
        if "enum" in schema:
            values = [
                value if isinstance(value, str) else json.dumps(value)
                for value in schema["enum"]
            ]
            return " | ".join(json.dumps(each, ensure_ascii=False) for each in values)
        if words := _TAG_WORDS.get(str(schema.get("type"))):
            return words
        shared = {
            key: self._root[key]
            for key in ("$defs", "definitions")
            if key in self._root
        }
        style = {**STYLE, "coerce_one_of": True, "lenient": True}
        return f"%json {json.dumps({**shared, **schema, 'x-guidance': style})}"


class _Follow(NamedTuple):
    """The tags that may follow a value."""

    tag: str
    key: str
    ends: bool

    def ways(self) -> str:
        """Return the body of the rule for the next tag."""
        ways = [f'"{_NEXT}" {self.key}'] if self.key else []
        return " | ".join([*ways, '"</function>"'] if self.ends else ways)


_ESCAPE = (
    r"\\(['\"\\nrtbf]|x[0-9a-fA-F]{2}|u([0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-"
    r"fA-F]{2})|U000[1-9a-fA-F][0-9a-fA-F]{4}|U0010[0-9a-fA-F]{4})"
)
"""Regular expression for an escaped character in a Python string. Half of a surrogate
pair is left out, since the parser refuses it."""
_SINGLE, _DOUBLE = (rf"([^{quote}\\\n\r]|{_ESCAPE})" for quote in "'\"")
_WORDS: Mapping[Any, str] = {
    True: '"True" | "true"', False: '"False" | "false"', None: '"None" | "null"',
}  # fmt: skip
"""Grammar rule bodies for constants. Models write Python's words, but in lists and
objects sometimes JSON's words."""

SHARED = (
    f"PY_TEXT: /'{_SINGLE}*'/ | /\"{_DOUBLE}*\"/",
    r"PY_NAME: /[A-Za-z_][A-Za-z0-9_]*/",
    r"PY_NUMBER: /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?/",
    f"py_any: PY_TEXT | PY_NUMBER | py_list | py_dict | {' | '.join(_WORDS.values())}",
    'py_list: "[" (py_any (", " py_any)*)? "]"',
    'py_dict: "{" (PY_TEXT ": " py_any (", " PY_TEXT ": " py_any)*)? "}"',
)
"""Rules that the rules of all tools refer to."""


class PythonArguments(_ArgumentRules):
    """Writes the grammar rules for one tool's arguments, e.g. ``path="a", depth=2``.

    If the schema of a value has ``allOf`` with several schemas, any value is allowed.
    If the schema of an object has ``properties``, other fields are not allowed.
    """

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        super().__init__(name, schema)
        self._references: dict[str, str] = {}

    def rules(self) -> list[str]:
        """Return the grammar's rules, the rule for the arguments first."""
        properties = self._root.get("properties")
        if not isinstance(properties, Mapping):
            pair = 'PY_NAME "=" py_any'
            return [f'{self._name}: ({pair} (", " {pair})*)?']
        required = self._root.get("required") or ()
        items = [
            (f"{json.dumps(f'{key}=')} ({self._value(value)})", key in required)
            for key, value in properties.items()
            if key.isidentifier() and key.isascii()  # others cannot be keywords
        ]
        return [*ordered(self._name, items), *self._rules]

    def _rule(self, body: str) -> str:
        """Add a rule with this body; return the rule's name."""
        name = f"{self._name}_v{len(self._rules)}"
        self._rules.append(f"{name}: {body}")
        return name

    def _value(self, schema: Any) -> str:
        """Return the body of a grammar rule for values that match the schema."""
        if isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            return self._reference(schema["$ref"])
        bodies = [self._one(each) for each in alternatives(schema)]
        return " | ".join(dict.fromkeys(bodies))

    def _reference(self, reference: str) -> str:
        if reference not in self._references:
            found = referred(reference, self._root)
            at = len(self._rules)
            name = self._references[reference] = f"{self._name}_v{at}"
            self._rules.append("")  # reserve the index: a schema may refer to itself
            self._rules[at] = f"{name}: {self._value(found)}"
        return self._references[reference]

    def _one(self, schema: Mapping[str, Any]) -> str:
        if "$ref" in schema:
            return self._value(schema)
        if "enum" in schema:
            return " | ".join(map(_literal, schema["enum"]))
        kind = schema.get("type")
        if kind == "string":
            return self._text(schema)
        if kind in ("integer", "number"):
            return self._rule(number_rule(schema))
        if kind == "boolean":
            return f"{_WORDS[True]} | {_WORDS[False]}"
        if kind == "null":
            return _WORDS[None]
        if kind == "array":
            return self._array(schema)
        return self._object(schema) if kind == "object" else "py_any"

    def _array(self, schema: Mapping[str, Any]) -> str:
        item = self._rule(self._value(schema.get("items", True)))
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return '"[]"'
        more = f"{{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
        items = f'{item} (", " {item}){more}'
        return f'"[" {items} "]"' if least else f'"[" ({items})? "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            value = self._rule(self._value(schema.get("additionalProperties", True)))
            pair = f'PY_TEXT ": " {value}'
            return f'"{{" ({pair} (", " {pair})*)? "}}"'
        required = schema.get("required") or ()
        items = [
            (f'({_literal(key)}) ": " ({self._value(value)})', key in required)
            for key, value in properties.items()
        ]
        name = f"{self._name}_v{len(self._rules)}"
        self._rules += ordered(name, items)
        return f'"{{" {name} "}}"'

    def _text(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        count = f"{{{least},{'' if most is None else most}}}"
        if not least and most is None:
            return "PY_TEXT"
        return f"/'{_SINGLE}{count}'/ | /\"{_DOUBLE}{count}\"/"


def _literal(value: Any) -> str:
    """Return the body of a rule that allows a constant as Python or JSON writes it."""
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    written = dict.fromkeys([repr(value), json.dumps(value, ensure_ascii=False)])
    return " | ".join(json.dumps(text, ensure_ascii=False) for text in written)
