"""Report the events of a running coding team, with LangChain's callbacks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult

from agentgym.core.tools import result_text
from agentgym.errors import message_of

_INTERNAL = frozenset({"team_state"})


class Usage(NamedTuple):
    """Numbers of model calls and tokens of a role; 0 tokens if not reported."""

    calls: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0


@dataclass(frozen=True)
class TeamEvent:
    """One event of a running coding team.

    Attributes:
        kind: ``asked`` if a role calls its model, ``said`` if the model has answered or
            failed, ``tool`` if a tool has returned a result, ``turn`` if a role's turn
            has ended.
        role: The role: supervisor, generator, reviewer or executor.
        text: The model's text, the tool's result, or the result of the turn; empty for
            ``asked``.
        tool: The tool's name; empty unless ``kind`` is ``tool``.
    """

    kind: Literal["asked", "said", "tool", "turn"]
    role: str
    text: str = ""
    tool: str = ""


Listener = Callable[[TeamEvent], None]


class TeamEvents(BaseCallbackHandler):
    """Passes a team's events to a listener, waits for it, and counts tokens by role.

    ``no_answer`` is the last error of a model call, if all so far have failed.
    """

    run_inline = True

    def __init__(self, listener: Listener | None = None) -> None:
        self.usage: dict[str, Usage] = {}
        self.no_answer = ""
        self._has_answered = False
        self._listener = listener
        self._roles: dict[UUID, str] = {}

    def begin(self) -> None:
        """Delete the counts and the error of an earlier request to the team."""
        self.usage.clear()
        self.no_answer, self._has_answered = "", False

    def report(self, event: TeamEvent) -> None:
        """Pass an event to the listener."""
        if self._listener is not None:
            self._listener(event)

    def on_chat_model_start(
        self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any
    ) -> None:
        """Report that a role calls its model; keep the role until the model answers."""
        role = self._roles[run_id] = _role_of(more.get("metadata"))
        self.report(TeamEvent("asked", role))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **more: Any) -> None:
        """Count the tokens of a model call, and report its text."""
        self.no_answer, self._has_answered = "", True
        role = self._roles.pop(run_id, "")
        message: Any = getattr(response.generations[0][0], "message", None)
        counted = getattr(message, "usage_metadata", None) or {}
        self._count(
            role, counted.get("input_tokens", 0), counted.get("output_tokens", 0)
        )
        if message is not None and message.text.strip():
            self.report(TeamEvent("said", role, str(message.text).strip()))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        """Count a failed model call, and report its error."""
        role = self._roles.pop(run_id, "")
        self._count(role)
        why = f"{type(error).__name__}: {message_of(error)}"
        if not self._has_answered:
            self.no_answer = why
        self.report(TeamEvent("said", role, f"no answer: {why}"))

    def _count(self, role: str, prompt: int = 0, response: int = 0) -> None:
        calls, prompts, responses = self.usage.get(role, Usage())
        self.usage[role] = Usage(calls + 1, prompts + prompt, responses + response)

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, **more: Any
    ) -> None:
        """Store the calling role and the tool's name for :meth:`on_tool_end`."""
        name = (serialized or {}).get("name", "")
        self._roles[run_id] = f"{_role_of(more.get('metadata'))}\0{name}"

    def on_tool_end(self, output: Any, *, run_id: UUID, **more: Any) -> None:
        """Report a tool's result."""
        role, _, name = self._roles.pop(run_id, "\0").partition("\0")
        if name and name not in _INTERNAL:
            text = output.text if hasattr(output, "text") else result_text(output)
            self.report(TeamEvent("tool", role, str(text), name))


def _role_of(metadata: dict[str, Any] | None) -> str:
    """Return the role that is running: the outermost LangGraph node in ``metadata``."""
    place = str((metadata or {}).get("langgraph_checkpoint_ns", ""))
    outer = place.partition("|")[0].partition(":")[0]
    return outer or str((metadata or {}).get("langgraph_node", ""))
