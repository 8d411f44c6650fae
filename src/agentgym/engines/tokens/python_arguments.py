"""PythonArguments: write grammar rules for arguments of the tool call format pythonic.

This format writes a call as in Python: ``[read_file(path="a", depth=2)]``.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.json_schema import referred
from agentgym.engines.tokens.schema_parts import (
    STYLE,
    alternatives,
    number_rule,
    ordered,
)
from agentgym.engines.tokens.text_patterns import whole_patterns

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
_TEXT_KEYS = ("type", "minLength", "maxLength", "pattern", "format")

SHARED = (
    f"PY_TEXT: /'{_SINGLE}*'/ | /\"{_DOUBLE}*\"/",
    r"PY_NAME: /[A-Za-z_][A-Za-z0-9_]*/",
    r"PY_NUMBER: /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?/",
    f"py_any: PY_TEXT | PY_NUMBER | py_list | py_dict | {' | '.join(_WORDS.values())}",
    'py_list: "[" (py_any (", " py_any)*)? "]"',
    'py_dict: "{" (PY_TEXT ": " py_any (", " PY_TEXT ": " py_any)*)? "}"',
)
"""Rules that the rules of all tools refer to."""


class PythonArguments:
    """Writes the grammar rules for one tool's arguments, e.g. ``path="a", depth=2``.

    If the schema of a value has ``allOf`` with several schemas, any value is allowed.
    If the schema of an object has ``properties``, other fields are not allowed.

    Args:
        name: Name of the first rule; the names of the other rules begin with it.
        schema: The JSON schema of the arguments.
        patterns: Whether strings must match their schema's ``pattern`` and ``format``.
    """

    def __init__(
        self, name: str, schema: Mapping[str, Any], *, patterns: bool = True
    ) -> None:
        self._name = name
        self._root = schema
        self._patterns = patterns
        self._rules: list[str] = []
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
        patterns = whole_patterns(schema) if self._patterns else []
        if patterns:
            return self._patterned(schema, count, patterns)
        if not least and most is None:
            return "PY_TEXT"
        return f"/'{_SINGLE}{count}'/ | /\"{_DOUBLE}{count}\"/"

    def _patterned(
        self, schema: Mapping[str, Any], count: str, patterns: Sequence[str]
    ) -> str:
        """Return the body of a grammar rule for a string that must match patterns.

        The string is written in double quotes as in JSON (Python has the same escapes),
        or in single quotes without escapes. ``count`` has the length limits, e.g.
        ``{0,5}``.
        """
        style = {**STYLE, "lenient": True}
        kept = {key: schema[key] for key in _TEXT_KEYS if key in schema}
        double = self._rule(f"%json {json.dumps({**kept, 'x-guidance': style})}")
        single = f"{self._name}_v{len(self._rules)}".upper()  # a terminal's name
        bodies = [rf"[^'\\\n\r]{count}", *patterns]
        self._rules.append(f"{single}: " + " & ".join(f"/'{b}'/" for b in bodies))
        return f"{single} | {double}"


def _literal(value: Any) -> str:
    """Return the body of a rule that allows a constant as Python or JSON writes it."""
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    written = dict.fromkeys([repr(value), json.dumps(value, ensure_ascii=False)])
    return " | ".join(json.dumps(text, ensure_ascii=False) for text in written)
