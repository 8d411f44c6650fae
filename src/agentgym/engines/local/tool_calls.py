"""From a response's text to its content and its tool calls."""

from collections.abc import Sequence
from hashlib import blake2b

from agentgym.core.components import find_calls
from agentgym.core.trajectory import RequestedCall


def parse_response(
    text: str, end_tokens: Sequence[str], key: str, *, thinking: bool = False
) -> tuple[str | None, list[RequestedCall]]:
    """Split a response into content and tool calls.

    Args:
        text: The response, special tokens included.
        end_tokens: Texts that may end a response; one is removed from its end.
        key: What the calls' ids are made from: the same key, the same ids.
        thinking: Whether the prompt ends in an open ``<think>``.

    Returns:
        The text outside tool calls, exactly as written, None if it is blank; and
        the well-formed calls. A malformed call stays in the content.
    """
    for end in end_tokens:
        if text.endswith(end):
            text = text.removesuffix(end)
            break
    calls: list[RequestedCall] = []
    kept: list[str] = []
    position = 0
    for span in find_calls(text, thinking=thinking):
        if span.name is None or span.arguments is None:
            continue
        kept.append(text[position : span.start])
        position = span.end
        calls.append(
            RequestedCall(
                id=_call_id(key, len(calls)), name=span.name, arguments=span.arguments
            )
        )
    content = "".join([*kept, text[position:]])
    return (content if content.strip() else None), calls


def _call_id(key: str, index: int) -> str:
    return "call_" + blake2b(f"{key}/{index}".encode(), digest_size=9).hexdigest()
