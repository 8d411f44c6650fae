"""What a provider takes and answers, restated as JSON Schema from its own description.

A fake asks it of every request and of each of its own answers: so what the provider
would refuse is refused, and the fake answers nothing that the provider would not.
"""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator


class Contract:
    """Schemas of one provider, in a file beside this one.

    Operations are written as in its description: ``GET /pods/{id}``.
    """

    def __init__(self, name: str) -> None:
        file = Path(__file__).with_name(f"{name}.json")
        self._spec: dict[str, Any] = json.loads(file.read_text())

    def request_problems(
        self, operation: str, query: dict[str, str], body: Any
    ) -> list[str]:
        """Return what is wrong with a request."""
        known = self._spec["queries"].get(operation, {"maxProperties": 0})
        expected = self._spec["bodies"].get(operation, {"type": "null"})
        return self._problems(known, query) + self._problems(expected, body)

    def answer_problems(self, operation: str, status: int, body: Any) -> list[str]:
        """Return what is wrong with an answer."""
        answers = self._spec["answers"]
        if status in self._spec["statuses"][operation]:
            return self._problems(answers["error"], body)
        if f"{operation} {status}" not in answers:
            return [f"{operation} never answers {status}"]
        return self._problems(answers[f"{operation} {status}"], body)

    def _problems(self, schema: dict[str, Any], value: Any) -> list[str]:
        whole = {**schema, "$defs": self._spec["$defs"]}
        found = Draft202012Validator(whole).iter_errors(value)
        return [f"{each.json_path}: {each.message}" for each in found]
