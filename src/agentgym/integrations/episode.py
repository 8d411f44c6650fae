"""Episode: one attempt at one task, in any framework.

Frameworks build their agent once per worker. The data that differs between episodes
(the URL for model calls, and the tools' environment) is looked up through a ContextVar,
so that many episodes share one agent and one HTTP client.
"""

import asyncio
import copy
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.core.files import whole_text
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.task import Task
from agentgym.core.tools import (
    Injected,
    Tool,
    ToolOutcome,
    ToolSpec,
    is_recordable,
    parse_arguments,
    run_tool,
)
from agentgym.core.trajectory import (
    MOST_REWARD,
    ModelCall,
    Reason,
    RolloutStatus,
    Step,
    ToolCall,
    Trajectory,
)
from agentgym.errors import (
    AgentGymError,
    ContextLengthError,
    ModelCallError,
    RewardError,
    RolloutError,
    UsageError,
)
from agentgym.integrations.inner_reward import receive_with
from agentgym.models.reply import Llm, ModelReply, read_reply
from agentgym.scenarios.base import Environment, ReportedReward
from agentgym.scenarios.tool_tasks.unseen import UnseenSpec, learn_schemas
from agentgym.security.audit import asking, digest, log_or_none, note

STUCK_AFTER = 3
"""Number of identical failing tool calls in a row after which an episode ends.

OpenHands detects stuck agents in a similar way. More repetitions would not help
training.
"""

MOST_ROLES = 32
"""All agents of a team together may make at most ``MOST_ROLES * max_turns`` model calls
in an episode."""

YES = "yes"
"""The answer to an agent's question if the scenario does not simulate a user."""

ONE_ANSWER = "one answer"
"""Kind of :attr:`Episode.cut` for tasks with ``one_answer``. They end as planned after
the model's first answer with tool calls; the trajectory then does not count as cut."""

_MALFORMED = "Error: the arguments are not a JSON object."
_MAX_REASON = 500
_Left = tuple[dict[str, str | None], dict[str, Any]]
"""Changed files and final state of an environment."""
_CURRENT: ContextVar["Episode"] = ContextVar("agentgym_episode")


class EpisodeCut(Exception):
    """The episode was ended early, e.g. because the policy made too many calls.

    The episode is still scored, unless it crashed or was cancelled.

    Attributes:
        reason: Why the episode ended. It has a kind, e.g. ``max_turns``, and a detail.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        self.reason = Reason(kind=kind, detail=detail)
        super().__init__(str(self.reason))


@dataclass
class Episode:
    """One attempt at one task, with its tools, its environment and its calls so far.

    Attributes:
        task: The task; ``task.instruction`` is the user's first message.
        rollout_id: Id of the rollout, which is one or more attempts at the task.
        attempt: Number of this attempt within the rollout, as a text.
        mode: ``train`` or ``val`` (validation).
        scenario: The scenario's name; empty if there is none.
        max_turns: Maximum number of model calls of each agent.
        llm: The model that :meth:`ask` calls; None if the agent has its own client.
        options: Default options of each :meth:`ask`, e.g. ``temperature``.
        system_prompt: The system prompt.
        steps: Tool calls, and model calls made with :meth:`ask`, in order.
        turns: Number of the agent's model requests, including refused requests.
        answered: Number of requests that the model has answered.
        cut: Why the episode was ended early; None if it was not.
        stopped: Whether the agent was stopped, e.g. by a guardrail. Then its last calls
            do not count as made if they did not run.
        overflowed: Whether the last request exceeded the model's context. The agent may
            continue with a shorter request. If the agent fails instead, the episode
            counts as cut short.
        crash: The unexpected exception that a tool's code raised, or None. ToolError is
            expected: it refuses a call. The episode ends as crashed, even if the
            framework handles the exception.
        tools: All tools by name. If an agent of a Python framework calls its own tool
            of the same name, the episode's tool is run instead.
        task_tools: Schemas of the environment's tools for models, in order.
        stub: Returns a tool with made-up answers for an agent's own tool that the
            environment does not answer; None to let the agent's code run it.
        requests: The last request of each agent, as JSON; it has the schemas of tools.
        end_state: The agent's own state at the end, as JSON values.
    """

    task: Task
    rollout_id: str = ""
    attempt: str = "0"
    mode: str = "val"
    scenario: str = ""
    max_turns: int = 10
    llm: Llm | None = None
    options: dict[str, Any] = field(default_factory=dict)
    system_prompt: str = ""
    steps: list[Step] = field(default_factory=list)
    turns: int = 0
    answered: int = 0
    cut: Reason | None = None
    stopped: bool = False
    overflowed: bool = False
    crash: Exception | None = None
    tools: dict[str, Tool] = field(default_factory=dict)
    task_tools: list[ToolSpec] = field(default_factory=list)
    stub: Callable[[str], Tool | None] = lambda name: None
    requests: dict[str, bytes] = field(default_factory=dict)
    end_state: dict[str, Any] = field(default_factory=dict)
    _inner: list[tuple[int, str, float]] = field(default_factory=list)
    _inner_sum: float = 0.0
    _turns_of: Counter[str] = field(default_factory=Counter)
    _environment: Environment | None = None
    _left: _Left = ({}, {})
    _loop: asyncio.AbstractEventLoop | None = None
    _started: float = field(default_factory=time.perf_counter)

    @property
    def path(self) -> str:
        """Path of this episode's OpenAI-compatible endpoint at the gateway."""
        return (
            f"/proxy/rollout/{self.rollout_id}/attempt/{self.attempt}"
            f"/mode/{self.mode}/openai/v1"
        )

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls so far, in order."""
        return [step for step in self.steps if isinstance(step, ToolCall)]

    def opening(self) -> list[dict[str, Any]]:
        """Return the first messages: the system prompt, unless empty, and the task."""
        user = {"role": "user", "content": self.task.instruction}
        if not self.system_prompt:
            return [user]
        return [{"role": "system", "content": self.system_prompt}, user]

    def has(self, name: str) -> bool:
        """Return whether a call of this name runs a tool of the episode.

        An agent's own tool may become one here.
        """
        where = self._environment
        if name not in self.tools and where is not None:
            made = where.late_tool(name) or self.stub(name)
            if made is not None:
                self.tools[name] = where.altered(made)
        return name in self.tools

    def _learn(self, name: str, arguments: dict[str, Any]) -> None:
        """Let an agent's own tool learn its schema from the agents' last requests."""
        spec = self.tools[name].spec if name in self.tools else None
        if not isinstance(spec, UnseenSpec) or (
            spec.is_known and spec.accepts(arguments)
        ):
            return
        for body in [*self.requests.values()]:
            learn_schemas([spec], json.loads(body).get("tools") or ())

    def begin_turn(self, role: str = DEFAULT_AGENT) -> None:
        """Count a model call of the agent ``role``.

        Raises:
            EpisodeCut: The episode is over, or a limit of model calls is exceeded.
        """
        if self.crash is not None:
            raise EpisodeCut("crash", str(self.crash))
        if self.task.one_answer and self.tool_calls:
            self.cut_short(ONE_ANSWER)
        self.turns += 1
        self._turns_of[role] += 1
        most = self.max_turns
        if self._turns_of[role] > most or self.turns > MOST_ROLES * most:
            whose = "" if role == DEFAULT_AGENT else f" of {role}"
            self.cut_short("max_turns", f"no answer within {most} calls{whose}")
        if self.cut is not None:
            raise EpisodeCut(self.cut.kind, self.cut.detail)

    def cut_short(self, kind: str, detail: str = "") -> None:
        """End the episode: later model calls and tool calls raise EpisodeCut.

        If the episode has been cut short before, the first reason remains.
        """
        self.cut = self.cut or Reason(kind=kind, detail=detail)

    async def ask(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        offer_tools: bool = True,
        agent: str = DEFAULT_AGENT,
        **options: Any,
    ) -> ModelReply:
        """Ask the model, and record the call.

        Args:
            messages: The conversation as OpenAI messages. To continue it, append
                ``reply.message``.
            offer_tools: Whether to send the episode's tools.
            agent: Name of the asking agent in a team.
            options: More options of chat completions, e.g. ``stop``.

        Raises:
            EpisodeCut: No model calls are left. Do not catch it: it ends the episode.
            ContextLengthError: The conversation is longer than the model's context.
            ReplyError: The answer is not a valid message.
            ModelCallError: The model call failed.
            TypeError: A message has a value that is not JSON.
        """
        if self.llm is None:
            raise ModelCallError("this rollout's model is asked by the agent itself")
        self.begin_turn(agent)
        asked = _as_json(list(messages))
        options = {**self.options, **options}
        if offer_tools and self.tools:
            options["tools"] = [tool.spec.to_openai() for tool in self.tools.values()]
        started = time.perf_counter()
        try:
            answer = await self.llm(copy.deepcopy(asked), **options)
        except AgentGymError as error:
            self.overflowed = isinstance(error, ContextLengthError)
            raise
        except Exception as error:  # user code
            raise ModelCallError(f"{type(error).__name__}: {error}") from error
        self.overflowed = False
        reply = read_reply(answer, step=self.turns)
        self.answered += 1
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
        self, name: str, arguments: str | dict[str, Any], *, call_id: str | None = None
    ) -> str:
        """Run a tool, record the outcome, and return the text for the agent.

        If the call is invalid or the tool refuses it (ToolError), the text starts with
        ``Error:``. Any other exception of the tool ends the episode as crashed, and is
        raised. The tool is not run with malformed arguments.

        Args:
            name: The tool's name, as the model wrote it.
            arguments: The arguments, as the JSON text of the model or as a dict.
            call_id: The id of the model's tool call, if it has one.

        Raises:
            EpisodeCut: The episode is already over, and the tool is not run. Or the
                same call has now failed in the same way three times in a row, which
                ends the episode (kind ``stuck``).
        """
        if self.cut is not None:
            raise EpisodeCut(self.cut.kind, self.cut.detail)
        parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
        if parsed is not None and not is_recordable(parsed):
            parsed = None
        started = time.perf_counter()
        outcome, result = ToolOutcome.MALFORMED, _MALFORMED
        if parsed is not None:
            try:
                self._learn(name, parsed)
                with asking(tool=name, call=call_id):
                    outcome, result = await run_tool(self.tools, name, parsed)
            except Exception as error:
                self.crash = error
                crash = f"crash: {type(error).__name__}"
                _note_tool(name, call_id, arguments, crash)
                raise
        made = ToolCall(
            id=call_id,
            name=name,
            arguments=_as_json(parsed),
            outcome=outcome,
            result=whole_text(result),
            fault=result.kind if isinstance(result, Injected) else "",
            duration_ms=1000 * (time.perf_counter() - started),
        )
        _note_tool(name, call_id, arguments, outcome, made.duration_ms)
        self.record_tool(made)
        return made.result

    def record_tool(self, made: ToolCall) -> None:
        """Record a tool call that has finished, even if other code ran the tool.

        Raises:
            EpisodeCut: The same call has now failed in the same way three times in a
                row.
        """
        self.steps.append(made)
        if self._is_stuck(made):
            self.cut_short("stuck")
            raise EpisodeCut("stuck")

    def use_tool_sync(
        self, name: str, arguments: str | dict[str, Any], *, call_id: str | None = None
    ) -> str:
        """Run a tool like :meth:`use_tool`, from sync code in another thread.

        Raises:
            RolloutError: It is called in the thread of the episode's event loop.
        """
        return self.run_sync(self.use_tool(name, arguments, call_id=call_id))

    def run_sync[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run a tool's coroutine on the episode's loop, from sync code in a thread."""
        if self._loop is None or _is_running(self._loop):
            work.close()
            raise RolloutError(
                "A synchronous tool was called on the event loop, which it would "
                "block: call the agent's sync code in asyncio.to_thread()."
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def user_reply(self, answer: str) -> str | None:
        """Return the user's reply to the agent; None if the conversation is over.

        If the environment has new tools now, they are added to the episode.
        """
        if self._environment is None:
            return None
        reply = self._environment.user_reply(answer)
        for tool in map(self._environment.altered, self._environment.tools()):
            if tool.spec.name not in self.tools:
                self.tools[tool.spec.name] = tool
                self.task_tools.append(tool.spec)
        return reply

    def answer_to(self, question: str) -> str:
        """Return the user's answer to a question that the agent asks while it runs.

        Without a simulated user, the answer is ``yes``.

        Raises:
            EpisodeCut: The user has left the conversation.
        """
        reply = self.user_reply(question)
        if reply is not None:
            return reply
        if self.has_user:
            wording = f"it waits for an answer to: {question}"
            self.cut_short("interrupt", wording)
            raise EpisodeCut("interrupt", wording)
        return YES

    @property
    def has_user(self) -> bool:
        """Whether the environment simulates a user."""
        silent = Environment.user_reply
        return getattr(type(self._environment), "user_reply", silent) is not silent

    @property
    def waits_for_user(self) -> bool:
        """Whether the simulated user's reply takes long, e.g. asks a model."""
        return self._environment is not None and self._environment.waits

    @property
    def folder(self) -> Path | None:
        """The folder with the task's files; None if the task has none."""
        return None if self._environment is None else self._environment.folder()

    @property
    def needs_answer(self) -> bool:
        """Whether the task requires a final answer from the agent."""
        return self._environment is None or self._environment.needs_answer

    def post_reward(self, reward: ReportedReward) -> None:
        """Store a reward that the user's program has sent over HTTP."""
        if self._environment is not None:
            self._environment.posted = reward

    def trajectory(
        self, status: RolloutStatus, reason: Reason | None, answer: str | None = None
    ) -> Trajectory:
        """Return the trajectory so far, with this status, reason and answer."""
        if reason is not None:
            detail = whole_text(reason.detail[:_MAX_REASON])
            reason = Reason(kind=reason.kind, detail=detail)
        where = self._environment
        files, state = self._left if where is None else _left_by(where)
        return Trajectory(
            rollout_id=self.rollout_id,
            scenario=self.scenario,
            task_id=self.task.id,
            family=self.task.family,
            level=self.task.level,
            steps=list(self.steps),
            status=status,
            reason=reason,
            duration_s=time.perf_counter() - self._started,
            answer=answer or None,
            changed_files=files,
            end_state=self.end_state | state,
        )

    def leave(self) -> None:
        """Forget the environment, which is closed next, but not how it was left."""
        environment, self._environment = self._environment, None
        if environment is not None:
            with suppress(Exception):  # the crash of an agent may have broken it
                self._left = _left_by(environment)

    def enter(self, environment: Environment) -> None:
        """Take the environment's tools, and make this the current episode.

        :func:`current_episode` then returns it in the calling asyncio task, and in the
        tasks that this task starts.

        Raises:
            UsageError: Two tools have the same name.
        """
        self._environment = environment
        self._loop = asyncio.get_running_loop()
        for tool in map(environment.altered, environment.tools()):
            if tool.spec.name in self.tools:
                raise UsageError(f"Two tools are named {tool.spec.name!r}; rename one.")
            self.tools[tool.spec.name] = tool
            self.task_tools.append(tool.spec)
        _CURRENT.set(self)
        receive_with(self._receive)

    def attach_inner_rewards(self) -> None:
        """Add each new ``agentgym.reward`` to the last model call before it."""
        calls = [step for step in self.steps if isinstance(step, ModelCall)]
        if not calls:
            return
        for answered, name, value in self._inner:
            place = min(max(answered - 1, 0), len(calls) - 1)
            of_call = calls[place].rewards
            of_call[name] = of_call.get(name, 0.0) + value
        self._inner.clear()

    def _receive(self, name: str, value: float) -> None:
        self._inner.append((self.answered, name, value))
        self._inner_sum += value
        if abs(self._inner_sum) > MOST_REWARD:
            raise RewardError(
                f"the values of agentgym.reward add up to {self._inner_sum:g} at "
                f"{name!r}, and {MOST_REWARD:g} is the most"
            )

    def _is_stuck(self, last: ToolCall) -> bool:
        recent = self.tool_calls[-STUCK_AFTER:]
        return (
            last.failed
            and len(recent) == STUCK_AFTER
            and all(map(last.repeats, recent))
        )


def current_episode() -> Episode:
    """Return the episode to which the running asyncio task or thread belongs."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise RolloutError(
            "A tool or model was called outside a rollout. If the agent starts its "
            "own threads, copy the context: contextvars.copy_context().run(...)."
        ) from None


def episode_or_none() -> Episode | None:
    """Return the current episode, or None outside of an episode."""
    return _CURRENT.get(None)


def _note_tool(
    name: str, call_id: str | None, arguments: Any, outcome: str, ms: float = 0.0
) -> None:
    if log_or_none() is not None:
        what = {"tool": name, "call": call_id, "arguments": digest(arguments)}
        note("tool", **what, outcome=outcome, ms=round(ms, 1))


def _left_by(environment: Environment) -> _Left:
    return environment.changed_files(), environment.end_state()


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _as_json(value: Any) -> Any:
    """Convert ``value`` to JSON and back; raise TypeError if this is impossible."""
    return json.loads(json.dumps(value))
