"""Read and write OpenAI's formats: errors, message parts, tool choice, completions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym.errors import RolloutError
from agentgym.security.redaction import quoted

CONTEXT_LENGTH = "context_length_exceeded"
"""Error code for a prompt that exceeds the model's context."""

_LEAST_LOGPROB, _MOST_LOGPROB = -1e4, 0.01

MOST_TOKEN_ID = 2**24
"""Token ids are below this number, which is larger than any vocabulary."""

NO_KEY = "none-is-needed-in-training"
"""Placeholder API key for model objects of the user's agent; it grants no access."""

DEFAULT_AGENT = "agent"
"""Role name of an agent that is not part of a team."""


@dataclass(eq=False)
class ApiError(RolloutError):
    """An error that the gateway returns to a client, in OpenAI's format.

    Attributes:
        code: OpenAI's ``code``, for programs, e.g. ``context_length_exceeded``.
        kind: OpenAI's ``type`` of the error.
    """

    status: int
    message: str
    code: str
    kind: str = "invalid_request_error"
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def body(self) -> dict[str, Any]:
        """JSON body of the response. Agent Lightning's clients read ``detail``."""
        wording = str(self)
        error = {
            "message": wording,
            "type": self.kind,
            "param": None,
            "code": self.code,
        }
        return {"error": error, "detail": wording}


_FORM: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "response_format": (None, {"type": "text"}),
}
_SAMPLING: Mapping[str, tuple[Any, ...]] = {
    "top_p": (None, 1),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
    "top_logprobs": (None, 0),
}


def unsupported_option(
    options: Mapping[str, Any], *, in_training: bool = False
) -> str | None:
    """Return the name of the first unsupported option.

    None if all are supported. Training replaces sampling options, so ``in_training``
    allows any of them.
    """
    neutral = _FORM if in_training else {**_FORM, **_SAMPLING}
    refused = (n for n, known in neutral.items() if options.get(n) not in known)
    return next(refused, None)


def joined_text(parts: list[Any]) -> str:
    """Join the parts of a message's content, strings or text parts, into one text."""
    return "".join(map(_text, parts))


def chosen_tools(tools: list[dict[str, Any]], choice: Any) -> list[dict[str, Any]]:
    """Return the tools that a ``tool_choice`` of OpenAI or Anthropic allows."""
    named = _chosen(choice)
    if named == "none":
        return []
    if named in (None, True, "auto", "required", "any"):
        return tools
    found = [tool for tool in tools if _name_of(tool) == named]
    if not found:
        offered = ", ".join(str(_name_of(tool)) for tool in tools) or "no tools"
        raise ValueError(
            f"tool_choice = {choice!r} is none of auto, none, required and the tools "
            f"offered: {offered}."
        )
    return found


def wants_call(choice: Any) -> bool:
    """Return whether a request's ``tool_choice`` requires a tool call."""
    return _chosen(choice) not in (None, "auto", "none")


def names_tool(choice: Any) -> bool:
    """Return whether a request's ``tool_choice`` names a certain tool."""
    return _chosen(choice) not in (None, True, "auto", "none", "required", "any")


def _chosen(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    function = choice.get("function")
    inner = function if isinstance(function, dict) else choice
    return inner.get("name") or choice.get("type")


def _name_of(tool: dict[str, Any]) -> Any:
    function = tool.get("function")
    return function.get("name") if isinstance(function, dict) else None


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise ValueError(f"a part is not an object but {type(part).__name__}")
    if part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise ValueError(f"a part of type {part.get('type')!r} holds no text")
    text: str = part["text"]
    return text


@dataclass(frozen=True, slots=True)
class Completion:
    """Reads the body of a chat or text completion that was not validated yet."""

    body: dict[str, Any]

    @property
    def choice(self) -> dict[str, Any]:
        """The first of ``choices``; empty if there is none."""
        choices = self.body.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else {}
        return first if isinstance(first, dict) else {}

    @property
    def prompt_ids(self) -> list[int]:
        """Token ids of the prompt, in the body or the choice; empty if missing."""
        found = self.body.get("prompt_token_ids")
        return found or self.choice.get("prompt_token_ids") or []

    @property
    def response_ids(self) -> list[int]:
        """Token ids that the model sampled; empty if missing."""
        return self.choice.get("token_ids") or []

    @property
    def logprobs(self) -> list[float] | None:
        """Log-probabilities of the response's tokens; None if missing or invalid."""
        raw = _logprob_entries(self.choice)
        if raw is None:
            return None
        usable = [float(x) for x in raw if is_logprob(x)]
        return usable if len(usable) == len(raw) else None

    @property
    def problem(self) -> str | None:
        """Why this completion is invalid; None if it is valid."""
        choice = self.choice
        if not choice:
            return "it has no choices"
        if "text" not in choice and (
            wording := _message_problem(choice.get("message"))
        ):
            return wording
        if not isinstance(choice.get("finish_reason", ""), str | None):
            return f"its finish_reason is {choice['finish_reason']!r}"
        named = {
            "prompt_token_ids": self.body.get("prompt_token_ids"),
            "prompt_token_ids of its choice": choice.get("prompt_token_ids"),
            "token_ids": choice.get("token_ids"),
        }
        for name, ids in named.items():
            if ids is not None and (wording := _ids_problem(ids)):
                return f"its {name} {wording}"
        if self.response_ids and not self.prompt_ids:
            return "it has token_ids and no prompt_token_ids"
        return None

    @property
    def length_problem(self) -> str | None:
        """A message if the numbers of log-probabilities and token ids differ."""
        count, given = len(self.response_ids), _logprob_entries(self.choice)
        if not given or count in (0, len(given)):
            return None
        return f"it has {len(given)} log-probabilities for {count} token ids"

    @property
    def logprob_problem(self) -> str | None:
        """A message on the first invalid log-probability; None if all are valid."""
        for value in _logprob_entries(self.choice) or ():
            if isinstance(value, int | float) and not is_logprob(value):
                return f"it has the log-probability {quoted(value)}"
        return None

    @property
    def token_counts(self) -> dict[str, int]:
        """The server's counts of tokens; empty if the token ids can be counted."""
        usage = self.body.get("usage")
        if self.prompt_ids or self.response_ids or not isinstance(usage, dict):
            return {}
        found = {
            "prompt_tokens": usage.get("prompt_tokens"),
            "response_tokens": usage.get("completion_tokens"),
        }
        return {name: n for name, n in found.items() if type(n) is int and n >= 0}


def is_logprob(value: object) -> bool:
    """Return whether a value can be the log-probability of a sampled token."""
    # Rounding gives values a little above 0, and servers write -9999 for minus
    # infinity.
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return _LEAST_LOGPROB <= value <= _MOST_LOGPROB


def _logprob_entries(choice: dict[str, Any]) -> list[Any] | None:
    found = choice.get("logprobs")
    if not isinstance(found, dict):
        return None
    if isinstance(content := found.get("content"), list):
        return [x.get("logprob") if isinstance(x, dict) else x for x in content]
    raw = found.get("token_logprobs")
    return raw if isinstance(raw, list) else None


def _ids_problem(ids: Any) -> str | None:
    if not isinstance(ids, list):
        return f"are not a list but {quoted(ids)}"
    if not ids or (
        set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < MOST_TOKEN_ID
    ):
        return None
    wrong = next(i for i in ids if type(i) is not int or not 0 <= i < MOST_TOKEN_ID)
    return f"hold {quoted(wrong)}, which is not a token id"


def _message_problem(message: Any) -> str | None:
    if not isinstance(message, dict):
        return "its choice has no message"
    calls = message.get("tool_calls")
    if calls is None or (isinstance(calls, list) and all(map(_is_tool_call, calls))):
        return None
    return "its tool_calls are not a list of function calls"


def _is_tool_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments", ""), str | None)
        and isinstance(call.get("id", ""), str | None)
    )
