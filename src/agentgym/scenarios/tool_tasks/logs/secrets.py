"""Keys and tokens that people paste into chats: they shall go into no other file."""

import re
from typing import Any

_SECRETS = re.compile(
    r"""\b(?:
        sk-(?:[A-Za-z]+-)*[A-Za-z0-9_-]{20,}      # OpenAI, Anthropic, OpenRouter
      | [rs]k_(?:live|test)_[A-Za-z0-9]{16,}      # Stripe
      | gh[opsur]_[A-Za-z0-9]{36,} | github_pat_[A-Za-z0-9_]{30,}
      | glpat-[A-Za-z0-9_-]{20,}
      | AKIA[0-9A-Z]{16} | AIza[A-Za-z0-9_-]{35}
      | xox[abeoprs]-[A-Za-z0-9-]{10,}
      | hf_[A-Za-z0-9]{30,} | gsk_[A-Za-z0-9]{30,} | lsv2_[a-z]{2}_[A-Za-z0-9_]{30,}
      | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*  # a JSON web token
    )
    | (?<=Bearer\ )[A-Za-z0-9._~+/-]{20,}=*
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----[\s\S]*?(?:-----END\ [A-Z ]*-----|\Z)
    """,
    re.VERBOSE,
)


class Secrets:
    """Puts a name in the place of each secret, the same for the same one."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    @property
    def count(self) -> int:
        """How many were found."""
        return len(self._names)

    def hidden(self, value: Any) -> Any:
        """Return a JSON value without its secrets."""
        if isinstance(value, str):
            return _SECRETS.sub(self._name, value)
        if isinstance(value, list):
            return [self.hidden(each) for each in value]
        if isinstance(value, dict):
            return {self.hidden(k): self.hidden(v) for k, v in value.items()}
        return value

    def _name(self, found: re.Match[str]) -> str:
        return self._names.setdefault(found[0], f"SECRET-{len(self._names) + 1}")
