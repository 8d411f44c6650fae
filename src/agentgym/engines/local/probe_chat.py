"""A short chat with a tool call, to see what a chat template makes of one."""

from typing import Any

PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "Probe.",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}


def probe_chat(arguments: str | dict[str, Any]) -> list[dict[str, Any]]:
    """Return messages in which the assistant calls ``probe_tool`` and is answered.

    Args:
        arguments: Of the call, as a template is given them.
    """
    return [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "call_00000",
                    "type": "function",
                    "function": {"name": "probe_tool", "arguments": arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_00000", "content": "r"},
    ]
