"""TagArguments: write grammar rules for arguments in the tool call format xml."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentgym.core.json_schema import referred
from agentgym.engines.tokens.schema_parts import STYLE, alternatives
from agentgym.engines.tokens.text_patterns import whole_patterns

_CLOSE, _NEXT, _END = r"<\/parameter>\s*", "<parameter=", r"<\/function>"
_OTHERS = {_NEXT: rf"({_END}|<\/tool_call>)", _END: rf"({_NEXT}|<\/tool_call>)"}
_DEEPEST = 8
_WORDS: Mapping[str, str] = {
    "boolean": '"true" | "false" | "True" | "False"', "null": '"null" | "None"',
}  # fmt: skip
"""Grammar rule bodies for constants. Some chat templates write them as in Python, not
as in JSON."""


class TagArguments:
    """Writes the grammar rules for one tool's arguments, up to its closing tag.

    A string is written without quotes or escapes. It ends at the first closing tag that
    is followed by another tag, as in the parser. Other values are written as JSON.

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
        """Yield a rule's body for each kind of value that a schema allows.

        The body includes the tags after the value; ``follow`` says which are possible.
        """
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
        patterns = whole_patterns(schema) if self._patterns else []
        is_open = not least and not patterns
        line = r"\n?" if is_open else r"\n"  # part of the format, not of the string
        ends = {_NEXT: bool(follow.key), _END: follow.ends}
        for end in (each for each, is_allowed in ends.items() if is_allowed):
            name = f"{self._name}_t{len(self._rules)}"
            bodies = [rf"(.|\n){count}", *patterns]
            whole = " & ".join(f"/{line}{b}{line}{_CLOSE}{end}/" for b in bodies)
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
        if words := _WORDS.get(str(schema.get("type"))):
            return words
        shared = {
            key: self._root[key]
            for key in ("$defs", "definitions")
            if key in self._root
        }
        style = {**STYLE, "coerce_one_of": True, "lenient": True}
        return f"%json {json.dumps({**shared, **schema, 'x-guidance': style})}"


class _Follow(NamedTuple):
    """The tags that may follow a value.

    Attributes:
        tag: Name of the rule for the next tag.
        key: Name of the rule for the text of the next parameter after ``<parameter=``;
            empty if no parameter can follow.
        ends: Whether the function's closing tag may follow.
    """

    tag: str
    key: str
    ends: bool

    def ways(self) -> str:
        """Return the body of the rule for the next tag."""
        ways = [f'"{_NEXT}" {self.key}'] if self.key else []
        return " | ".join([*ways, '"</function>"'] if self.ends else ways)
