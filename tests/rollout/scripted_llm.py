"""Model functions and agents with a script, good and bad ones."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from agentgym.rollout import Episode, RolloutAgent

Llm = Callable[..., Awaitable[Any]]


def calling(name: str, call_id: str | None = "c1", **arguments: Any) -> dict[str, Any]:
    """Return a message that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def saying(*replies: Any) -> Llm:
    """Return a model that gives ``replies`` by how often the assistant spoke."""

    async def llm(messages: list[dict[str, Any]], **_: Any) -> Any:
        spoken = sum(message["role"] == "assistant" for message in messages)
        reply = replies[min(spoken, len(replies) - 1)]
        if isinstance(reply, BaseException):
            raise reply
        return reply

    return llm


async def echo(messages: list[dict[str, Any]], **_: Any) -> str:
    """Answer with the last message."""
    await asyncio.sleep(0)
    return f"You said: {messages[-1]['content']}"


class Unreliable(RolloutAgent):
    """Does what the task's instruction says."""

    name = "unreliable"

    async def run(self, episode: Episode) -> str | None:
        reply = await episode.ask(episode.opening())
        match episode.task.instruction:
            case "crash":
                raise ValueError("it broke")
            case "exit":
                raise SystemExit(3)
            case "hang":
                await asyncio.Event().wait()
            case "block":
                time.sleep(0.8)
            case "ignore":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    await asyncio.sleep(1.5)
            case "cancel":
                raise asyncio.CancelledError
            case "garbage":
                return 42  # type: ignore[return-value]
            case "nothing":
                return None
        return reply.content
