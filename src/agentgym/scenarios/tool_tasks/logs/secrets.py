"""Remove API keys and tokens that people paste into chats."""

from typing import Any

from agentgym.security.redaction import Redactor


class Secrets:
    """Replaces secrets (API keys and tokens) by names such as ``SECRET-1``.

    Equal secrets get the same name.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._redactor = Redactor.of_environment()

    @property
    def count(self) -> int:
        """Number of different secrets found."""
        return len(self._names)

    def hidden(self, value: Any) -> Any:
        """Return a JSON value in which each secret is replaced by its name."""
        if isinstance(value, str):
            return self._redactor.replaced(value, self._name)
        if isinstance(value, list):
            return [self.hidden(each) for each in value]
        if isinstance(value, dict):
            return {self.hidden(k): self.hidden(v) for k, v in value.items()}
        return value

    def _name(self, found: str, mask: str) -> str:
        return self._names.setdefault(found, f"SECRET-{len(self._names) + 1}")
