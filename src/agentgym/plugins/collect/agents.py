"""RolloutAgent: agents for rollouts without training, and how a name finds one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from agentgym.core.agent import is_command
from agentgym.errors import NotFoundError, UsageError
from agentgym.integrations.agent_import import load_agent
from agentgym.integrations.episode import Episode
from agentgym.integrations.native import ReAct, ToolLoop, ToolPrompt
from agentgym.integrations.registry import load_factory
from agentgym.integrations.run import talk
from agentgym.plugins.programs.attempt import ProgramAttempts
from agentgym.programs.program import ProgramCommand
from agentgym.rollout.gateway.upstream import completion

_PASSED_ON = (
    *("tools", "tool_choice", "stop", "temperature", "max_tokens"),
    *("response_format", "parallel_tool_calls"),
)
_MODEL = "policy"


class RolloutAgent(ABC):
    """An agent that attempts many tasks at a time, on one asyncio event loop.

    ::

        class OneShot(RolloutAgent):
            name = "one_shot"

            async def run(self, episode):
                reply = await episode.ask(episode.opening())
                return reply.content

    One instance serves all rollouts: keep a rollout's state in local variables.

    Attributes:
        name: Name of the agent on the command line.
        system_prompt: System prompt, unless the configuration or the scenario has one.
        tools: Names of the ready-made tools that are used if the user chooses none.
    """

    name: ClassVar[str] = "agent"
    system_prompt: ClassVar[str] = ""
    tools: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    async def run(self, episode: Episode) -> str | None:
        """Attempt one task and return the answer; empty or None if there is no answer.

        Ask the model with ``episode.ask`` and use tools with ``episode.use_tool``, so
        that both are recorded. If the scenario simulates a user, get the next message
        from ``episode.user_reply(answer)``. Do not block the event loop.

        Raises:
            Exception: Any exception drops the rollout, with the error as the reason.
        """

    async def close(self) -> None:
        """Release resources that all rollouts share; called after the last one."""


class ToolAgent(RolloutAgent):
    """Lets the model call tools until its answer has no tool call."""

    name = "tool"
    system_prompt = "Solve the user's task. Use the tools where they help, then answer."
    prompt: ClassVar[ToolPrompt] = ToolPrompt()

    async def run(self, episode: Episode) -> str | None:
        """Run the loop of model calls and tool calls; return the final answer."""
        ask = partial(episode.ask, **self.prompt.options)
        loop = ToolLoop(episode, lambda: ask, self.prompt, episode.system_prompt)
        return await talk(loop, episode)


class ReactAgent(ToolAgent):
    """Reads tool calls from the answer's text, for models without tool calling."""

    name = "react"
    system_prompt = (
        "Solve the user's task step by step, with the tools where they help."
    )
    prompt = ReAct()


class CodingAgent(ToolAgent):
    """Lets the model edit the task's files, and run commands in the sandbox."""

    name = "coding"
    system_prompt = (
        "You work on the files of a small project. Look before you change anything: "
        "search, and view files. Make the smallest change that solves the task, run "
        "the code or its tests with bash to check it, then say in one or two "
        "sentences what you did. Paths are relative to the project's folder."
    )
    tools = ("bash", "file_editor", "search")


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
    if is_command(agent) or agent in _BUILT_IN:
        return True
    if ":" not in agent:
        return False
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
