"""Running a tool call and recording what became of it."""

import time
from collections.abc import Mapping
from typing import Any

from agentgym.core.tools import Tool, run_tool
from agentgym.core.trajectory import ToolCall


async def run_call(
    tools: Mapping[str, Tool],
    name: str,
    arguments: dict[str, Any],
    *,
    call_id: str | None = None,
) -> ToolCall:
    """Run a call and return its record; ``result`` is the text for the agent.

    Raises:
        Exception: Whatever the tool raises, but for refusals.
    """
    started = time.perf_counter()
    outcome, result = await run_tool(tools, name, arguments)
    return ToolCall(
        id=call_id,
        name=name,
        arguments=dict(arguments),
        outcome=outcome,
        result=result,
        duration_ms=1000 * (time.perf_counter() - started),
    )
