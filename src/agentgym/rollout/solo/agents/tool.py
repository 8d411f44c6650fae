"""The tool agent: native tool calling until the model answers."""

from typing import ClassVar

from agentgym.rollout.solo.agents.base import RolloutAgent
from agentgym.rollout.solo.attempt import Attempt


class ToolAgent(RolloutAgent):
    """Runs the tools that the model calls, until an answer that ends the talk."""

    name: ClassVar[str] = "tool"
    system_prompt: ClassVar[str] = (
        "Solve the user's task. Use the tools where they help, then answer."
    )

    async def run(self, attempt: Attempt) -> str | None:
        """Run the loop."""
        messages = attempt.opening()
        while True:
            reply = await attempt.ask(messages)
            messages.append(reply.message)
            if not reply.tool_calls:
                more = attempt.user_reply(reply.content)
                if more is None:
                    return reply.content
                messages.append({"role": "user", "content": more})
            for call in reply.tool_calls:
                result = await attempt.use_tool(
                    call.name, call.arguments, call_id=call.id
                )
                messages.append(
                    {"role": "tool", "tool_call_id": call.id, "content": result}
                )
