"""Read ATIF, the Agent Trajectory Interchange Format (RFC 0001 of Harbor).

A document has a ``schema_version`` that starts with ``ATIF-`` and ``steps`` of the
system, the user and the agent; steps of the agent have ``tool_calls`` and an
``observation`` with the results. Trajectories of subagents are in
``subagent_trajectories``.
"""

from collections.abc import Mapping
from typing import Any

from agentgym.scenarios.tool_tasks.logs.message import Message, read_message
from agentgym.scenarios.tool_tasks.logs.trace import Trace


def is_atif(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a trajectory in the ATIF format."""
    version = value.get("schema_version")
    return isinstance(version, str) and version.startswith("ATIF-")


def read_atif(value: Mapping[str, Any]) -> Trace:
    """Convert an ATIF trajectory to a `Trace`, with the conversations of subagents.

    Raises:
        ValueError: The trajectory has no readable steps.
    """
    found = [_conversation(value)]
    for part in value.get("subagent_trajectories") or ():
        found.append(_conversation(part))
    agent = value.get("agent")
    tools = agent.get("tool_definitions") if isinstance(agent, dict) else None
    return Trace(found, tools=tools or ())


def _conversation(value: Mapping[str, Any]) -> list[Message]:
    messages: list[Message] = []
    steps = value.get("steps")
    if not isinstance(steps, list) or not all(isinstance(s, dict) for s in steps):
        raise ValueError("its steps are not a list of objects")
    for step in steps:
        if missing := sorted({"source", "message"}.difference(step)):
            raise ValueError(f"a step has no {' and no '.join(missing)}")
        if step["source"] != "agent":
            said = {"role": step["source"], "content": step["message"]}
            messages.append(read_message(said))
            continue
        calls = [
            {
                "id": call.get("tool_call_id", ""),
                "name": call["function_name"],
                "arguments": call["arguments"],
            }
            for call in step.get("tool_calls") or ()
        ]
        said = {"role": "assistant", "content": step["message"], "tool_calls": calls}
        messages.append(read_message(said))
        for result in (step.get("observation") or {}).get("results") or ():
            answer = {
                "role": "tool",
                "tool_call_id": result.get("source_call_id") or "",
                "content": result.get("content") or "",
            }
            messages.append(read_message(answer))
    return messages
