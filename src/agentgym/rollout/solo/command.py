"""CommandAgent: run a program as the agent of rollouts without training."""

from typing import Any

from agentgym.integrations.command.attempt import ProgramAttempts
from agentgym.integrations.episode import Episode
from agentgym.programs.program import ProgramCommand
from agentgym.rollout.gateway.chat import completion
from agentgym.rollout.solo.agents import RolloutAgent

_PASSED_ON = (
    "tools",
    "tool_choice",
    "stop",
    "temperature",
    "max_tokens",
    "response_format",
    "parallel_tool_calls",
)
_MODEL = "policy"


class CommandAgent(RolloutAgent):
    """Runs a program on each task, and passes the program's model calls to ``llm``.

    ``reference`` is the program's command line, with or without the prefix
    ``command:``. If the program is not on this machine, a UsageError is raised.
    """

    name = "command"

    def __init__(self, reference: str) -> None:
        program = ProgramCommand.parse(reference).located()
        program.require()
        self._attempts = ProgramAttempts(program, _MODEL, _ask)

    async def run(self, episode: Episode) -> str | None:
        """Run the program on the episode's task; return its answer.

        The answer is the program's standard output. A program that takes several tasks
        stays alive, and sends an answer for each task.
        """
        return await self._attempts.run(episode)

    async def close(self) -> None:
        """End idle programs, and stop answering model calls of programs."""
        await self._attempts.close()


async def _ask(episode: Episode, body: dict[str, Any], role: str) -> dict[str, Any]:
    options = {
        name: body[name]
        for name in _PASSED_ON
        if body.get(name) is not None and name not in episode.options
    }
    if (most := body.get("max_completion_tokens")) is not None:
        options = {"max_tokens": most, **episode.options, **options}
    messages = body.get("messages") or []
    reply = await episode.ask(messages, offer_tools=False, agent=role, **options)
    counted = reply.recorded
    prompt, response = (
        counted.get(f"{kind}_tokens") or len(counted.get(f"{kind}_ids") or ())
        for kind in ("prompt", "response")
    )
    choice = {
        "message": reply.message,
        "finish_reason": reply.finish_reason,
        "logprobs": None,
    }
    call_id = f"chatcmpl-{episode.rollout_id}-{episode.turns}"
    return completion(call_id, _MODEL, choice, prompt, response)
