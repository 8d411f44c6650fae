"""Record the tool calls that reached an episode's environment, for rewards."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.errors import RuleViolation, ToolError


class ReceivedCall(NamedTuple):
    """A tool call that reached the environment; ``args`` include defaults."""

    tool: str
    args: dict[str, Any]


@dataclass
class Books:
    """A record of the tool calls that an environment received in an episode.

    Attributes:
        errors: Calls that were refused or failed, without those in ``violations``.
        violations: Calls that broke a rule.
    """

    calls: list[ReceivedCall] = field(default_factory=list)
    errors: list[ReceivedCall] = field(default_factory=list)
    violations: list[ReceivedCall] = field(default_factory=list)

    @contextmanager
    def recording(self, call: ReceivedCall) -> Iterator[None]:
        """Run the block, which makes ``call``; record it by the block's error."""
        try:
            yield
        except RuleViolation:
            self.violations.append(call)
            raise
        except ToolError:
            self.errors.append(call)
            raise
        self.calls.append(call)

    def forbid(self, message: str, *, enforce: bool) -> None:
        """Refuse a call that breaks a rule, or only record that the rule was broken."""
        if enforce:
            raise RuleViolation(message)
        self.violations.append(ReceivedCall("", {"rule": message}))
