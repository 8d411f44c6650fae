"""Find agents for rollouts by name: built in, your own, or programs."""

from collections.abc import Mapping
from typing import Any

from agentgym.core.agent import is_command
from agentgym.errors import NotFoundError, UsageError
from agentgym.integrations.agent_import import load_agent
from agentgym.integrations.episode import Episode
from agentgym.integrations.registry import load_factory
from agentgym.plugins.collect.agents import (
    CodingAgent,
    ReactAgent,
    RolloutAgent,
    ToolAgent,
)
from agentgym.plugins.programs.attempt import ProgramAttempts
from agentgym.programs.program import ProgramCommand
from agentgym.rollout.gateway.upstream import completion

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


_BUILT_IN: Mapping[str, type[RolloutAgent]] = {
    kind.name: kind for kind in (ReactAgent, ToolAgent, CodingAgent)
}


def is_for_rollouts(agent: str) -> bool:
    """Return whether a name stands for a :class:`RolloutAgent` or a program.

    Else it is a framework's agent, a saved agent, or nothing.
    """
    if is_command(agent) or agent in _BUILT_IN or ":" not in agent:
        return is_command(agent) or agent in _BUILT_IN
    found = load_agent(agent)
    return isinstance(found, RolloutAgent) or (
        isinstance(found, type) and issubclass(found, RolloutAgent)
    )


def get_agent(agent: str | RolloutAgent | type[RolloutAgent]) -> RolloutAgent:
    """Return the agent for a name, ``module:Class``, ``command:…``, or a class.

    An instance is returned as it is.
    """
    found: Any = agent
    if isinstance(agent, str) and is_command(agent):
        return CommandAgent(agent)
    if isinstance(agent, str):
        if ":" not in agent and agent not in _BUILT_IN:
            hint = "Give a class of your own as module:Class."
            raise NotFoundError("agent for rollouts", agent, _BUILT_IN, hint)
        found = _BUILT_IN[agent] if agent in _BUILT_IN else load_factory(agent)
    if isinstance(found, type) and issubclass(found, RolloutAgent):
        try:
            found = found()
        except TypeError as error:
            raise UsageError(
                f"The agent {found.__name__} cannot be built without arguments: "
                f"{error}. Give an instance."
            ) from None
    if not isinstance(found, RolloutAgent):
        raise UsageError(
            f"{agent!r} is a {type(found).__name__}, not a RolloutAgent. Subclass it; "
            "a framework's agent is measured with `agentgym eval TASKS --agent "
            "module:name --model MODEL`."
        )
    return found
