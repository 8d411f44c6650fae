"""Episode: one attempt at one task inside a worker, found through a ContextVar.

Frameworks build their agent once per worker. What differs between episodes, the
identity that the gateway needs and the environment that tools act on, is looked up
here, so that many episodes can share one agent and one HTTP client.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.tool_runs import run_call
from agentgym.core.tools import Tool, ToolOutcome, is_recordable, whole_text
from agentgym.core.trajectory import ToolCall
from agentgym.errors import RolloutError
from agentgym.integrations.base import EpisodeCut

MALFORMED = "Error: the arguments are not a JSON object."
STUCK_AFTER = 3
"""Calls in a row, the same and failing the same way, after which an episode ends."""

_CURRENT: ContextVar["Episode"] = ContextVar("agentgym_episode")


@dataclass
class Episode:
    """One attempt at one task.

    Attributes:
        rollout_id: The rollout, ``attempt`` its try, ``mode`` ``train`` or ``val``.
        tools: The environment's tools by name.
        user_reply: The user's next message to an answer of the agent, None to end
            the conversation; the environment's ``user_reply``.
        calls: Outcomes of the calls that reached a tool, in order.
        model_calls: Requests that the agent has made of the model, refused ones too.
    """

    rollout_id: str
    attempt: str
    mode: str
    tools: dict[str, Tool]
    user_reply: Callable[[str], str | None] = lambda _: None
    calls: list[ToolCall] = field(default_factory=list)
    model_calls: int = 0

    @property
    def path(self) -> str:
        """The gateway's path of this episode's OpenAI-compatible endpoint."""
        return (
            f"/proxy/rollout/{self.rollout_id}/attempt/{self.attempt}"
            f"/mode/{self.mode}/openai/v1"
        )

    def enter(self) -> None:
        """Make this the current episode of the running asyncio task."""
        _CURRENT.set(self)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], *, call_id: str | None = None
    ) -> str:
        """Run a tool, record the outcome, and return the text for the agent.

        A refusal (``ToolError``, malformed or invalid arguments, unknown tool) is text
        that starts with ``Error:``; any other exception ends the episode as crashed.
        Malformed arguments reach no tool: they stay on record as the model wrote them.

        Raises:
            EpisodeCut: ``stuck``: the same call has failed in the same way three times
                running. Nothing new can come of it, as in OpenHands' detector of
                stuck agents, and its further repetitions would teach and tell nothing.
        """
        if not is_recordable(arguments):
            return MALFORMED
        call = await run_call(self.tools, name, arguments, call_id=call_id)
        call.result = whole_text(call.result)
        self.calls.append(call)
        if self._is_stuck():
            raise EpisodeCut("stuck")
        return call.result

    def _is_stuck(self) -> bool:
        last, recent = self.calls[-1], self.calls[-STUCK_AFTER:]
        failed = last.outcome is not ToolOutcome.OK
        return failed and len(recent) == STUCK_AFTER and all(map(last.repeats, recent))


def current_episode() -> Episode:
    """Return the episode that the running task belongs to.

    Raises:
        RolloutError: The caller runs outside any episode, e.g. because the agent
            started a thread that did not copy the context.
    """
    try:
        return _CURRENT.get()
    except LookupError:
        raise RolloutError(
            "A tool or model was called outside an episode. If the agent starts its "
            "own threads, copy the context: contextvars.copy_context().run(...)."
        ) from None
