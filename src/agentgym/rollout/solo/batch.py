"""Batches of rollouts on their own: many at a time, all of them accounted for."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agentgym.core.task import Task
from agentgym.core.trajectory import (
    Reason,
    RolloutStatus,
    Summary,
    Trajectory,
    summarize,
)
from agentgym.errors import UsageError
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import Ending, ScenarioEnding, run_episode
from agentgym.models.reference import Endpoint
from agentgym.models.reply import Llm
from agentgym.rollout.solo.agents import RolloutAgent, get_agent
from agentgym.rollout.solo.config import RolloutConfig
from agentgym.rollout.solo.llm.resolve import open_llm
from agentgym.rollout.solo.rewards import FunctionEnding, RewardFunction
from agentgym.rollout.solo.tasks import TaskLike, as_tasks, files_of
from agentgym.rollout.solo.toolbox import Toolbox
from agentgym.rollout.solo.trajectory_file import TrajectoryWriter
from agentgym.rollout.workers.loop_watch import LoopWatch
from agentgym.scenarios.base import Environment, Scenario
from agentgym.scenarios.registry import get_scenario

_MOST_STANDSTILL_S = 10.0
_CANCELLED = Reason(kind="cancelled", detail="the batch was ended")


@dataclass(frozen=True)
class RolloutBatch:
    """What a batch of rollouts came to.

    Attributes:
        trajectories: One per task, in the tasks' order.
        saved: The file that they were appended to, None if nowhere.
    """

    trajectories: list[Trajectory]
    saved: Path | None = None

    @cached_property
    def summary(self) -> Summary:
        """How many succeeded, failed and were dropped, why, and at what cost."""
        return summarize(self.trajectories)


async def run_rollouts(
    tasks: Iterable[TaskLike],
    *,
    llm: Llm | Endpoint | str,
    agent: str | RolloutAgent | type[RolloutAgent] | None = None,
    tools: Sequence[Any] | Mapping[str, Mapping[str, Any]] | None = None,
    reward: RewardFunction | Scenario | str | None = None,
    config: RolloutConfig | None = None,
    on_done: Callable[[Trajectory], None] | None = None,
    **settings: Any,
) -> RolloutBatch:
    """Let an agent attempt every task, many at a time.

    Nothing that an agent, a model or a tool does ends the batch. A rollout ends
    *succeeded* (it answered, and reached its scenario's goal), *failed* (no answer in
    ``max_steps``, an empty one, or the goal not reached) or *dropped* (a crash, a
    timeout, a garbage reply, a refused key, a reward that could not be computed).

    Args:
        tasks: Texts, mappings with ``instruction``, or :class:`Task` objects.
        llm: ``async def llm(messages, **options)`` that returns text or an
            OpenAI-style message; ``openai:NAME``; or an address, ``http://…/v1``.
        agent: Instead of ``config.agent``: a name, ``module:Class``, a class or an
            instance.
        tools: Instead of ``config.tools``: names, one's own functions, and objects
            with ``@tool`` methods; or a mapping of names to settings.
        reward: ``reward(task, trajectory)``; or a scenario, or its name, whose tasks
            these must be: then its environments, tools and reward are used.
        config: Every other setting.
        on_done: Called with each trajectory as it ends, once it is saved.
        settings: Fields of :class:`RolloutConfig`, stronger than ``config``.

    Raises:
        UsageError: Something given cannot be meant; nothing was started.
        SandboxUnavailableError: A tool needs a sandbox and none works here.
        OSError: The file cannot be written.
        asyncio.CancelledError: The caller was cancelled. What had ended is saved, the
            rest is saved as dropped.
    """
    given: dict[str, Any] = {**settings}
    if isinstance(agent, str):
        given["agent"] = agent
    own: list[Any] = []
    if tools is not None:
        given["tools"], own = _named_and_own(tools)
    config = (config or RolloutConfig()).replaced(**given)
    chosen = get_agent(config.agent if agent is None else agent)
    todo = as_tasks(tasks)
    async with _opened(config, chosen, own, llm, reward) as setup:
        with ExitStack() as stack:
            writer = None
            if config.save is not None:
                writer = stack.enter_context(TrajectoryWriter(config.save))

            def ended(trajectory: Trajectory) -> None:
                if writer is not None:
                    writer.write(trajectory)
                if on_done is not None:
                    on_done(trajectory)

            stack.enter_context(LoopWatch(min(config.timeout_s, _MOST_STANDSTILL_S)))
            trajectories = await _run_all(setup, todo, ended)
    return RolloutBatch(trajectories, config.save)


def run_rollouts_sync(tasks: Iterable[TaskLike], **options: Any) -> RolloutBatch:
    """Run :func:`run_rollouts` and wait; it takes the same arguments.

    Raises:
        UsageError: It is called inside a running event loop, or as
            :func:`run_rollouts` says.
        KeyboardInterrupt: Ctrl-C; what had ended is saved.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run_rollouts(tasks, **options))
    raise UsageError(
        "run_rollouts_sync() was called inside an event loop, e.g. in a notebook: "
        "use `await run_rollouts(...)`."
    )


def _named_and_own(
    tools: Sequence[Any] | Mapping[str, Any],
) -> tuple[dict[str, Any], list[Any]]:
    """Part tools into names with settings and one's own."""
    if isinstance(tools, str):
        raise UsageError(f"tools is {tools!r}; give a list, e.g. [{tools!r}].")
    if isinstance(tools, Mapping):
        return dict(tools), []
    named: dict[str, Any] = {tool: {} for tool in tools if isinstance(tool, str)}
    return named, [tool for tool in tools if not isinstance(tool, str)]


@dataclass(frozen=True)
class _Setup:
    """What all rollouts of a batch share."""

    batch: str
    config: RolloutConfig
    agent: RolloutAgent
    llm: Llm
    toolbox: Toolbox
    scenario: Scenario | None
    ending: Ending

    def episode(self, task: Task, index: int) -> Episode:
        """Return the episode of the task with this number."""
        config, scenario = self.config, self.scenario
        prompt = config.system_prompt
        if prompt is None:
            prompt = scenario.system_prompt() if scenario else self.agent.system_prompt
        sampling = {
            "max_tokens": config.max_tokens_per_step,
            "temperature": config.temperature,
        }
        return Episode(
            task,
            rollout_id=f"{self.batch}-{index:05d}",
            scenario="" if scenario is None else scenario.name,
            max_turns=config.max_steps,
            llm=self.llm,
            options={key: n for key, n in sampling.items() if n is not None},
            system_prompt=prompt,
        )

    def create_environment(self, task: Task) -> Environment:
        """Return where a task is attempted."""
        if self.scenario is not None:
            return self.scenario.create_environment(task)
        return self.toolbox.bench(files_of(task))

    async def run(self, episode: Episode) -> Trajectory:
        """Bring an episode to its end."""
        return await run_episode(
            episode,
            self.agent.run,
            create_environment=self.create_environment,
            ending=self.ending,
            timeout_s=self.config.timeout_s,
        )


@asynccontextmanager
async def _opened(
    config: RolloutConfig,
    agent: RolloutAgent,
    own: list[Any],
    llm: Llm | Endpoint | str,
    reward: RewardFunction | Scenario | str | None,
) -> AsyncIterator[_Setup]:
    """Open the model, the tools and the scenario; close what was opened here."""
    function, scenario, opened_here = _read_reward(reward)
    try:
        if scenario is not None and (own or config.tools):
            raise UsageError(
                f"The scenario {scenario.name!r} brings its own tools: leave out tools."
            )
        if scenario is not None and config.unsafe_local_exec:
            scenario.unsafe_local_exec = True
        named = config.tools
        if named is None:
            named = {} if own or scenario is not None else {t: {} for t in agent.tools}
        toolbox = Toolbox(named, own, unsafe_local_exec=config.unsafe_local_exec)
        ending = ScenarioEnding(scenario) if scenario else FunctionEnding(function)
        batch = uuid.uuid4().hex[:8]
        try:
            await asyncio.to_thread(toolbox.open)
            async with open_llm(llm) as model:
                yield _Setup(batch, config, agent, model, toolbox, scenario, ending)
        finally:
            await asyncio.to_thread(toolbox.close)
    finally:
        if scenario is not None and opened_here:
            scenario.close()


def _read_reward(
    reward: RewardFunction | Scenario | str | None,
) -> tuple[RewardFunction | None, Scenario | None, bool]:
    """Return the function, the scenario, and whether the scenario was opened here.

    Raises:
        ScenarioNotFoundError: No scenario has this name.
        UsageError: It is neither a function nor a scenario.
    """
    if reward is None:
        return None, None, False
    if isinstance(reward, str):
        return None, get_scenario(reward), True
    if isinstance(reward, Scenario):
        return None, reward, False
    if callable(reward):
        return reward, None, False
    raise UsageError(
        f"reward is {reward!r}; give a function (task, trajectory) -> float, or a "
        "scenario."
    )


async def _run_all(
    setup: _Setup, tasks: Sequence[Task], ended: Callable[[Trajectory], None]
) -> list[Trajectory]:
    """Run all tasks, ``concurrency`` at a time."""
    done: dict[int, Trajectory] = {}
    running: dict[int, Episode] = {}
    waiting = iter(enumerate(tasks))

    def end(index: int, trajectory: Trajectory) -> None:
        running.pop(index, None)
        done[index] = trajectory
        ended(trajectory)

    async def work() -> None:
        for index, task in waiting:
            running[index] = setup.episode(task, index)
            end(index, await setup.run(running[index]))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(setup.config.concurrency, len(tasks))):
                group.create_task(work())
    except asyncio.CancelledError:
        left = {index: setup.episode(task, index) for index, task in waiting}
        for index, episode in {**running, **left}.items():
            end(index, episode.trajectory(RolloutStatus.DROPPED, _CANCELLED))
        raise
    except ExceptionGroup as group_error:  # saving failed, or on_done raised
        raise group_error.exceptions[0] from None
    return [done[index] for index in range(len(tasks))]
