"""run_episode: run one attempt at a task, with an agent, a user, limits and a reward.

It is used in training, for rollouts without training, and for the check of a scenario,
in which agents without a model solve tasks.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym.core.background import call_in_thread
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.task import Task
from agentgym.core.trajectory import (
    AGENT_CRASHED,
    Reason,
    RolloutStatus,
    Step,
    Trajectory,
)
from agentgym.errors import (
    ModelCallError,
    ProgramError,
    ProviderError,
    ReplyError,
    RewardError,
    ScenarioError,
)
from agentgym.integrations.base import AgentLoop, Conversation
from agentgym.integrations.episode import ONE_ANSWER, Episode, EpisodeCut
from agentgym.scenarios.base import Environment, Scenario, score
from agentgym.security.audit import asking
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_GRACE_S = 1.0
_TICKS = 4  # looks at an episode within its timeout
_MOST_TIMEOUTS = 10
"""An episode that moves, or waits for its model, may take this many timeouts."""
_PACKAGE = Path(__file__).parents[1]
_PARTS = 3
"""Number of path parts, from the end, that an error message shows of a file's path."""

_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (ReplyError, "garbage reply"),
    (ProviderError, "refused key"),
    (ModelCallError, "model"),
    (RewardError, "reward"),
)

Drive = Callable[["Episode"], Awaitable[str | None]]
"""Runs an agent through an episode; returns the agent's answer."""


class Ending:
    """Reads the steps of a finished episode, and scores the episode.

    By default, the steps are ``episode.steps``, and there is no score.
    """

    async def steps(self, episode: Episode) -> list[Step]:
        """Return the episode's steps, in order."""
        return episode.steps

    async def wrong_answer(self, episode: Episode, error: Exception) -> Reason | None:
        """Return a reason if the policy's last answer made the agent crash; else None.

        ``error`` is the exception with which the agent crashed.
        """
        return None

    async def score(
        self, episode: Episode, environment: Environment, trajectory: Trajectory
    ) -> Trajectory:
        """Return the trajectory with its score. The environment is still open."""
        return trajectory


class ScenarioEnding(Ending):
    """Scores an episode with the scenario's reward.

    The reward is computed in a thread, because it may run slow tests.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    async def score(
        self, episode: Episode, environment: Environment, trajectory: Trajectory
    ) -> Trajectory:
        """Return the trajectory with the scenario's reward; of a crash at most 0."""
        reward = await call_in_thread(
            score, self._scenario, episode.task, environment, trajectory
        )
        if trajectory.reason is not None and trajectory.reason.kind == AGENT_CRASHED:
            lowest = self._scenario.reward_range[0]
            value = max(lowest, min(reward.value, 0.0))
            parts = reward.parts | {AGENT_CRASHED: value - reward.value}
            reward = replace(reward, value=value, success=False, parts=parts)
        return trajectory.scored(reward)


async def run_episode(
    episode: Episode,
    drive: Drive,
    *,
    create_environment: Callable[[Task], Environment],
    ending: Ending,
    timeout_s: float | None = None,
) -> Trajectory:
    """Run one attempt at a task; do not raise errors of the agent or the scenario.

    ``drive`` runs the agent, e.g. by :func:`converse`. The episode hangs, and is ended,
    when no call of a model or a tool has ended for ``timeout_s`` wall seconds. Waiting
    for a busy model is progress, up to ten times ``timeout_s`` in all. The episode
    keeps its steps even if the caller is cancelled, and the environment is always
    closed.
    """

    async def work() -> Trajectory:
        environment = create_environment(episode.task)
        try:
            episode.enter(environment)
            answer: Any = None
            try:
                answer = await drive(episode)
            except EpisodeCut as cut:
                episode.cut_short(cut.reason.kind, cut.reason.detail)
            except Exception as error:
                if episode.overflowed:
                    episode.cut_short("context_overflow", str(error))
                elif wrong := await ending.wrong_answer(episode, error):
                    episode.cut_short(wrong.kind, wrong.detail)
                if episode.cut is None and episode.crash is None:
                    raise
            if episode.crash is not None:
                raise episode.crash
            if not isinstance(answer, str | None):
                raise ReplyError(
                    f"the agent returned {type(answer).__name__}, not text"
                )
            episode.steps = await ending.steps(episode)
            reason = episode.cut
            if reason is not None and reason.kind == ONE_ANSWER:
                reason = None
            came_to_end = reason is None
            status = RolloutStatus.SUCCEEDED if came_to_end else RolloutStatus.FAILED
            episode.attach_inner_rewards()
            ended = episode.trajectory(status, reason, answer)
            with asking(tool=None, call=None, purpose="reward"):
                ended = await ending.score(episode, environment, ended)
            episode.attach_inner_rewards()
            return ended.with_inner_rewards()
        finally:
            episode.leave()
            environment.close()

    who = {"rollout": episode.rollout_id, "attempt": episode.attempt}
    try:
        with asking(**who, task=episode.task.id, agent=DEFAULT_AGENT):
            return await _run_to_end(work(), episode, timeout_s)
    except EpisodeCut as cut:
        return episode.trajectory(RolloutStatus.DROPPED, cut.reason)
    except Exception as error:  # code of the agent and the scenario
        logger.info("rollout %s crashed", episode.rollout_id, exc_info=True)
        return episode.trajectory(RolloutStatus.DROPPED, reason_of(error))


async def converse(loop: AgentLoop, episode: Episode) -> str:
    """Run a new conversation of an agent with the user; return the last answer."""
    conversation = loop.converse()
    try:
        return await talk(conversation, episode)
    finally:
        await conversation.close()


async def talk(conversation: Conversation, episode: Episode) -> str:
    """Continue a conversation to its end; return the agent's last answer.

    Agent and user take turns. If the environment adds tools between two turns, they are
    offered to the agent.
    """
    message: str | None = episode.task.instruction
    answer = ""
    while message is not None:
        answer = await conversation.turn(message)
        if episode.cut is not None:  # the framework then made up an answer
            break
        known = len(episode.task_tools)
        if episode.waits_for_user:
            message = await call_in_thread(episode.user_reply, answer)
        else:
            message = episode.user_reply(answer)
        if len(episode.task_tools) > known:
            conversation.add_tools()
    return answer


def reason_of(error: Exception) -> Reason:
    """Return the reason for dropping a rollout after an error.

    For an unexpected error, its detail ends with the file and line that raised the
    error. They are left out if they are in AgentGym's own code.
    """
    if isinstance(error, ProgramError):
        return Reason(kind=error.kind, detail=str(error))
    for expected, kind in _KINDS:
        if isinstance(error, expected):
            return Reason(kind=kind, detail=str(error))
    reason = Reason.of_error(
        error, "scenario" if isinstance(error, ScenarioError) else "crash"
    )
    body = getattr(error, "body", None)  # OpenAI's errors repeat the body in their text
    text = body.get("message") if isinstance(body, dict) else None
    if isinstance(text, str):
        return Reason(kind=reason.kind, detail=text)
    detail = f"{reason.detail} {_place_of(error)}".strip()
    return Reason(kind=reason.kind, detail=detail)


def _place_of(error: Exception) -> str:
    """Return the file and line that raised an error; empty if in AgentGym's code."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        name = "/".join(path.parts[-_PARTS:])
        place = "" if _PACKAGE in path.parents else f"({name}:{line})"
    return place


async def _run_to_end[T](
    work: Coroutine[Any, Any, T], episode: Episode, timeout_s: float | None
) -> T:
    """Run ``work`` as a separate asyncio task, and return its result.

    Work that hangs is cancelled. Work that ignores the cancellation is abandoned.
    """
    task = asyncio.create_task(_contained(work))
    try:
        hanging = await _watch(task, episode, timeout_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_S)
            # Retrieve the exception of abandoned work, so that asyncio does not warn.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
    if hanging:
        raise EpisodeCut("timeout", hanging)
    if task.cancelled():
        raise EpisodeCut("cancelled", "the agent or its model was cancelled")
    return task.result()


async def _watch(
    task: asyncio.Task[Any], episode: Episode, timeout_s: float | None
) -> str:
    """Wait for the task; return why it counts as hanging, or "" once it is done."""
    started = moved = time.monotonic()
    seen = (0, 0)
    tick = None if timeout_s is None else timeout_s / _TICKS
    while True:
        await asyncio.wait({task}, timeout=tick)
        if task.done() or timeout_s is None or tick is None:
            return ""
        now, state = time.monotonic(), (episode.answered, len(episode.steps))
        is_waiting = episode.turns > episode.answered  # for a model, which may be busy
        if is_waiting or state != seen:
            seen, moved = state, now
        if now - moved + tick / 2 >= timeout_s:
            return f"nothing moved for {timeout_s:g} s"
        if now - started >= _MOST_TIMEOUTS * timeout_s:
            return f"no end within {_MOST_TIMEOUTS * timeout_s:g} s"


async def _contained[T](work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except SystemExit as error:  # in an asyncio task it would end the whole program
        raise RuntimeError(f"the agent called sys.exit({error.code!r})") from None
