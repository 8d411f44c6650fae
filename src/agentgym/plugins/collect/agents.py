"""RolloutAgent: base class of agents for rollouts without training."""

from abc import ABC, abstractmethod
from functools import partial
from typing import ClassVar

from agentgym.integrations.episode import Episode
from agentgym.integrations.native import ReAct, ToolLoop, ToolPrompt
from agentgym.integrations.run import talk


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
