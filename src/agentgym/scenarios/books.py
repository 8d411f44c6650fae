"""Record the tool calls that reached an episode's environment, for rewards."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.errors import RuleViolation, ToolError


class ReceivedCall(NamedTuple):
    """A tool call that reached the environment.

    Attributes:
        tool: Name of the tool.
        args: The arguments that the environment got, defaults included.
    """

    tool: str
    args: dict[str, Any]


@dataclass
class Books:
    """A record of the tool calls that an environment received in an episode.

    Attributes:
        calls: Calls that succeeded, in order.
        errors: Calls that were refused or failed, without those in ``violations``.
        violations: Calls that broke a rule.
    """

    calls: list[ReceivedCall] = field(default_factory=list)
    errors: list[ReceivedCall] = field(default_factory=list)
    violations: list[ReceivedCall] = field(default_factory=list)

    @contextmanager
    def recording(self, call: ReceivedCall) -> Iterator[None]:
        """Run the ``with`` block, which makes ``call``, and record the call.

        The exception of the block selects the list: ``RuleViolation`` selects
        ``violations``, another ``ToolError`` selects ``errors``, none selects
        ``calls``.
        """
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
