"""Books: the calls of an episode as its environment saw them, for rewards to read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.errors import RuleViolation, ToolError


class ReceivedCall(NamedTuple):
    """A tool call that reached the environment.

    Attributes:
        tool: The tool.
        args: Its arguments as the environment understood them, defaults included.
    """

    tool: str
    args: dict[str, Any]


@dataclass
class Books:
    """The calls of an episode, recorded by the environment itself.

    Attributes:
        calls: Calls that ran, in order.
        errors: Calls that were refused or failed, apart from broken rules.
        violations: Calls that a rule forbade.
    """

    calls: list[ReceivedCall] = field(default_factory=list)
    errors: list[ReceivedCall] = field(default_factory=list)
    violations: list[ReceivedCall] = field(default_factory=list)

    @contextmanager
    def recording(self, call: ReceivedCall) -> Iterator[None]:
        """Write ``call`` down once the block has shown how it went."""
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
        """Refuse a call that breaks a rule, or only count it.

        Raises:
            RuleViolation: Rules are enforced; the message names the broken one.
        """
        if enforce:
            raise RuleViolation(message)
        self.violations.append(ReceivedCall("", {"rule": message}))
