"""Find reviewers' decisions in logged tool results.

LangChain's ``HumanInTheLoopMiddleware`` keeps the model's original call in the
conversation. The result of a rejected call says that it was rejected. The result of an
edited call begins with a notice that has the edited call. Approved calls have no mark.
"""

import json
from dataclasses import replace

from agentgym.scenarios.tool_tasks.logs.message import LoggedCall, Result

_REJECTED = "User rejected the tool call for `"
_EDITED, _WITH = "Executed instead: ", " with arguments "
_RESPONSE = "Tool response:"
_NOTICE = 2_000
"""Most characters of a result that come before the notice of an edit."""


def is_rejected(answer: Result | None) -> bool:
    """Return whether a result says that a reviewer rejected its call."""
    return answer is not None and answer.text.lstrip().startswith(_REJECTED)


def edited(
    call: LoggedCall, answer: Result | None
) -> tuple[LoggedCall, Result | None] | None:
    """Return the call as a reviewer edited it, and the result of the edited call.

    Args:
        call: The model's original call.
        answer: The result in the log; None if the log does not have it.

    Returns:
        The edited call and its result; the result is None if the log does not have it.
        None instead of the pair if ``answer`` has no notice of an edit.
    """
    text = "" if answer is None else answer.text
    at = text.find(_EDITED, 0, _NOTICE)
    name, found, rest = text[at + len(_EDITED) :].partition(_WITH)
    if answer is None or at < 0 or not found or not name.strip():
        return None
    try:
        arguments, end = json.JSONDecoder().raw_decode(rest)
    except ValueError:
        return None
    if not isinstance(arguments, dict):
        return None
    said = rest[end:].removeprefix(".").lstrip().removeprefix(_RESPONSE).lstrip("\n")
    made = replace(call, name=name, arguments=arguments)
    return made, replace(answer, text=said) if said else None
