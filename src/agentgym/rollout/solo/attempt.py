"""Attempt: what an agent works with during one rollout, and what is recorded of it."""

import copy
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentgym.core.task import Task
from agentgym.core.tool_runs import run_call
from agentgym.core.tools import (
    Tool,
    ToolOutcome,
    is_recordable,
    parse_arguments,
    whole_text,
)
from agentgym.core.trajectory import ModelCall, Step, ToolCall
from agentgym.errors import AgentGymError, ModelCallError
from agentgym.integrations.base import EpisodeCut
from agentgym.integrations.episode import MALFORMED
from agentgym.rollout.solo.config import RolloutConfig
from agentgym.rollout.solo.llm.reply import Llm, Reply, read_reply


class Attempt:
    """One attempt at one task: ask the model, use the tools; both are recorded.

    Attributes:
        task: The task; ``task.instruction`` is what the user says.
        system_prompt: What the agent is told before.
        tools: The tools, by name.
        steps: What was recorded so far.
    """

    def __init__(
        self,
        task: Task,
        *,
        llm: Llm,
        config: RolloutConfig,
        tools: Sequence[Tool],
        system_prompt: str,
        user_reply: Callable[[str], str | None],
    ) -> None:
        self.task = task
        self.system_prompt = system_prompt
        self.tools = {tool.spec.name: tool for tool in tools}
        self.steps: list[Step] = []
        self._llm = llm
        self._config = config
        self._user_reply = user_reply
        self._asked = 0

    def opening(self) -> list[dict[str, Any]]:
        """Return the first messages: the system prompt, if any, and the task."""
        user = {"role": "user", "content": self.task.instruction}
        if not self.system_prompt:
            return [user]
        return [{"role": "system", "content": self.system_prompt}, user]

    async def ask(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        offer_tools: bool = True,
        agent: str = "agent",
        **options: Any,
    ) -> Reply:
        """Ask the model, and record the call.

        Args:
            messages: The conversation, OpenAI-shaped; append ``reply.message`` to it.
            offer_tools: Whether the model is told of the tools.
            agent: Who of a team speaks.
            options: Others of OpenAI's chat completions, e.g. ``stop``.

        Raises:
            EpisodeCut: ``max_steps`` calls were made. Let it pass: it ends the
                rollout.
            ReplyError: The answer is no message.
            ModelCallError: The model could not be asked.
            TypeError: A message holds what is no JSON.
        """
        config = self._config
        if self._asked >= config.max_steps:
            raise EpisodeCut("max_steps", f"no answer within {config.max_steps} calls")
        self._asked += 1
        asked = _as_json(list(messages))
        if config.max_tokens_per_step is not None:
            options.setdefault("max_tokens", config.max_tokens_per_step)
        if config.temperature is not None:
            options.setdefault("temperature", config.temperature)
        offered = [tool.spec.to_openai() for tool in self.tools.values()]
        if offer_tools and offered:
            options["tools"] = offered
        started = time.perf_counter()
        try:
            answer = await self._llm(copy.deepcopy(asked), **options)
        except AgentGymError:
            raise
        except Exception as error:  # the user's own function
            raise ModelCallError(f"{type(error).__name__}: {error}") from error
        reply = read_reply(answer, step=self._asked)
        self.steps.append(
            ModelCall(
                agent=agent,
                messages=asked,
                tools=options.get("tools", []),
                content=reply.content or None,
                tool_calls=reply.tool_calls,
                finish_reason=reply.finish_reason,
                latency_ms=1000 * (time.perf_counter() - started),
                **reply.recorded,
            )
        )
        return reply

    async def use_tool(
        self,
        name: str,
        arguments: str | dict[str, Any],
        *,
        call_id: str | None = None,
    ) -> str:
        """Run a tool, record the outcome, and return the text for the model.

        What the model did wrong, and what the tool refused, is text that starts with
        ``Error:``.

        Args:
            name: The tool, as the model named it.
            arguments: As the model wrote them, JSON, or parsed.
            call_id: The id of the model's tool call, if it has one.
        """
        parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
        if parsed is None or not is_recordable(parsed):
            outcome = ToolOutcome.MALFORMED
            made = ToolCall(id=call_id, name=name, outcome=outcome, result=MALFORMED)
        else:
            made = await run_call(self.tools, name, parsed, call_id=call_id)
            made.arguments = _as_json(parsed)
            made.result = whole_text(made.result)
        self.steps.append(made)
        return made.result

    def user_reply(self, answer: str) -> str | None:
        """Return what the user says to an answer; None ends the conversation.

        Only the users of scenarios with several turns say more.
        """
        return self._user_reply(answer)


def _as_json(value: Any) -> Any:
    """Return a copy of ``value`` as it will be saved.

    Raises:
        TypeError: Something in it is no JSON, so that it could not be saved.
    """
    return json.loads(json.dumps(value))
