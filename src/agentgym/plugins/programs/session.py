"""ProgramSession: record a program's model calls and tool results in its episode."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from itertools import takewhile
from typing import Any

from agentgym.core.files import parse_json, whole_text
from agentgym.core.openai import CONTEXT_LENGTH, ApiError
from agentgym.core.tools import ToolOutcome, parse_arguments, result_text
from agentgym.core.trajectory import RequestedCall, ToolCall
from agentgym.errors import ContextLengthError, ReplyError
from agentgym.integrations.episode import Episode, EpisodeCut
from agentgym.integrations.offered import check_offered, offered_functions
from agentgym.models.dialects.base import IS_ERROR
from agentgym.models.reply import read_reply
from agentgym.scenarios.base import ReportedReward

Ask = Callable[[Episode, dict[str, Any], str], Awaitable[dict[str, Any]]]
"""Sends a request to the model, and counts the model call.

Takes the episode, the request and the agent's name; returns the chat completion.
"""

_ERROR = re.compile(
    r"\s*(?:[\w.]*(?:error|exception):|traceback \(most recent call last\):"
    r"|an error occurred)",
    re.IGNORECASE,
)
_ENDED = "(the program ended with this call)"
_NO_RESULT = "(the program showed the model no result of this call)"


def failed(result: str) -> bool:
    """Return whether the text of a tool's result is clearly an error.

    An error starts with ``Error:``, an exception's name or a traceback, or is a JSON
    object with ``error`` or ``isError``. A text that only mentions an error is not
    enough.
    """
    if _ERROR.match(result):
        return True
    if result.lstrip().startswith("{"):
        try:
            found = parse_json(result)
        except ValueError:
            return False
        if isinstance(found, dict):
            said = found.get("error") or found.get("isError") or found.get(IS_ERROR)
            return bool(said)
    return False


class ProgramSession:
    """Answers one program's model calls, and records the results of its tool calls.

    Attributes:
        over: An event that is set when the episode is cut short. The program must then
            end.
        failure: The error of the last model call; None if it succeeded.
        last_text: The text of the model's last answer; empty before the first one.
    """

    def __init__(self, episode: Episode, ask: Ask) -> None:
        self.episode = episode
        self.over = asyncio.Event()
        self.failure: Exception | None = None
        self.last_text = ""
        self._ask = ask
        self._waiting: dict[str, tuple[RequestedCall, Mapping[str, Any] | None]] = {}
        self._written: dict[str, tuple[RequestedCall, Any]] = {}
        self._asked: list[list[str]] = []  # the ids of each answer's calls
        self._goes_on = False  # whether a request followed the last answer

    async def answer(self, body: dict[str, Any], role: str) -> dict[str, Any]:
        """Record a chat request's tool results, and return the model's completion."""
        self._goes_on = True
        try:
            self._record_results(body)
            self._restore(body)
            completion = await self._ask(self.episode, body, role)
            reply = read_reply(completion, step=self.episode.turns)
        except EpisodeCut as cut:
            self.over.set()
            message = f"The rollout is over: {cut}."
            raise ApiError(400, message, cut.reason.kind) from None
        except ApiError as error:
            self.failure = error
            raise
        except ContextLengthError as error:
            self.failure = error
            raise ApiError(400, str(error), CONTEXT_LENGTH) from error
        except Exception as error:
            self.failure = error
            status = 502 if isinstance(error, ReplyError) else 500
            kind = type(error).__name__
            raise ApiError(
                status, f"{kind}: {error}", "model", "server_error"
            ) from error
        self.failure = None
        self.last_text = reply.content
        offered = offered_functions(body.get("tools") or ())
        self._asked.append([call.id for call in reply.tool_calls])
        self._goes_on = False
        said = reply.message.get("content")
        for call in reply.tool_calls:
            self._waiting[call.id] = call, offered.get(call.name)
            self._written[call.id] = call, said
        return completion

    def post_reward(self, value: Any) -> None:
        """Store a reward that the program posts; raise ApiError if it is invalid."""
        try:
            self.episode.post_reward(ReportedReward.model_validate(value))
        except ValueError as error:
            message = f'This is not a reward, as in {{"reward": 0.5}}: {error}'
            raise ApiError(422, message, "invalid_reward") from None

    @property
    def has_answer(self) -> bool:
        """Whether the model's last answer has no tool calls."""
        return bool(self._asked) and not self._asked[-1]

    def end(self, *, came_to_end: bool) -> None:
        """Record answers' tool calls of which the program sent no result at all.

        The program passes control with them, or writes results in words of its own. If
        it sent a result of another call of the same answer or the same tool, it left
        these out.
        """
        answered = {call.name for call in self.episode.tool_calls}
        for place, names in enumerate(self._asked, 1):
            is_last = place == len(self._asked) and not self._goes_on
            waiting = [self._waiting[n][0] for n in names if n in self._waiting]
            tools = [call.name for call in waiting]
            has_run = came_to_end if is_last else answered.isdisjoint(tools)
            if has_run and len(waiting) == len(names):
                for name in names:
                    text = _ENDED if is_last else _NO_RESULT
                    self.episode.steps.append(self._made(name, text, is_error=False))

    def _record_results(self, body: dict[str, Any]) -> None:
        """Record the tool calls whose results a request contains.

        A result is in a message of its own. Without one, a message of the assistant
        names the calls' ids, and the text after it is their result.
        """
        messages = _objects(body.get("messages"))
        for message in messages:
            said_error = message.pop(IS_ERROR, False) is True
            name = message.get("tool_call_id")
            if isinstance(name, str) and name in self._waiting:
                text = result_text(_plain(message.get("content")))
                is_error = said_error or failed(text)
                self.episode.record_tool(self._made(name, text, is_error=is_error))
        for place, message in enumerate(messages):
            written = str(message.get("content") or "")
            if self._waiting and message.get("role") == "assistant":
                after = takewhile(_is_user, messages[place + 1 :])
                text = "\n".join(str(_plain(each.get("content"))) for each in after)
                for name in [name for name in self._waiting if name in written]:
                    made = self._made(name, text, is_error=failed(text))
                    self.episode.record_tool(made)

    def _restore(self, body: dict[str, Any]) -> None:
        """Restore the model's exact text in earlier messages that a request repeats.

        Clients parse a call's arguments and write them again with other spaces, so the
        tokens would differ from those that the model sampled. Arguments and texts that
        the client really changed are not replaced.
        """
        for message in _objects(body.get("messages")):
            for call in _objects(message.get("tool_calls")):
                written, said = self._written.get(str(call.get("id")), (None, None))
                function = call.get("function")
                if written is None or not isinstance(function, dict):
                    continue
                meant = parse_arguments(written.arguments)
                given = parse_arguments(str(function.get("arguments") or "{}"))
                if given == (meant or {}):
                    function["arguments"] = written.arguments
                if (message.get("content") or "") == (said or ""):
                    message["content"] = said

    def _made(self, name: str, result: str, *, is_error: bool) -> ToolCall:
        """Take a call from those without a result, and return it with its result."""
        call, function = self._waiting.pop(name)
        outcome = ToolOutcome.UNKNOWN_TOOL
        if function is not None:
            outcome, _ = check_offered(function, call.arguments)
        if outcome is ToolOutcome.OK and is_error:
            outcome = ToolOutcome.RAISED
        return ToolCall(
            id=call.id,
            name=call.name,
            arguments=parse_arguments(call.arguments),
            outcome=outcome,
            result=whole_text(result),
        )


def _objects(found: Any) -> list[dict[str, Any]]:
    """Return the dicts in a list, without other items, which the gateway refuses."""
    items = found if isinstance(found, list) else []
    return [each for each in items if isinstance(each, dict)]


def _is_user(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "user"


def _plain(content: Any) -> Any:
    """Return the joined text parts of a tool result that is a list; "" for None.

    Other results are returned unchanged.
    """
    if not isinstance(content, list):
        return "" if content is None else content
    texts = [part.get("text") for part in _objects(content)]
    return "".join(text for text in texts if isinstance(text, str))
