"""Run batches of rollouts without training; each task gets a trajectory."""

import asyncio
import json
import math
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentgym.core.agent import Trained
from agentgym.core.background import call, in_background
from agentgym.core.files import parse_json
from agentgym.core.notebook import Shown, in_notebook, notebook_bar
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import (
    Reason,
    Reward,
    RolloutStatus,
    Trajectory,
)
from agentgym.engines.local.support import load_policy
from agentgym.errors import RewardError, UsageError, first_problem, unreadable
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import Drive, Ending, ScenarioEnding, run_episode
from agentgym.models.answers import AnswerCache
from agentgym.models.reference import Endpoint, is_local, resolve_model, weights_of
from agentgym.models.reply import Llm
from agentgym.plugins.collect.agents import RolloutAgent, get_agent
from agentgym.plugins.collect.config import RolloutConfig
from agentgym.plugins.collect.toolbox import Toolbox
from agentgym.rollout.summary import Summary, summarize
from agentgym.rollout.trajectory_file import TrajectoryWriter
from agentgym.rollout.workers.loop_watch import LoopWatch
from agentgym.sandbox.commands import check_files
from agentgym.sandbox.ladder import tried
from agentgym.scenarios.base import Environment, Scenario, reward_problem
from agentgym.scenarios.registry import get_scenario

TaskLike = Task | str | Mapping[str, Any]
"""A task, the user's request as text, or a mapping with ``instruction``.

A mapping may also have other fields of :class:`Task`: ``id``, ``goal`` (for a reward
function), ``initial_state``, ``family``, ``level``, ``seed`` and ``split``.
``initial_state["files"]`` maps paths to texts, and fills the workspace.
"""


def as_tasks(values: Iterable[TaskLike]) -> list[Task]:
    """Convert texts and mappings to tasks, and check the paths of their files."""
    if isinstance(values, str | Mapping):
        raise UsageError(
            f"Give a list of tasks, not {values!r}; read_tasks() reads a file."
        )
    tasks = [_as_task(value, index) for index, value in enumerate(values)]
    for task in tasks:
        files_of(task)
    return tasks


def read_tasks(path: Path) -> list[Task]:
    """Read tasks from a JSON Lines file; each line is a text or an object."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"Cannot read tasks from {path}: {unreadable(error)}."
        ) from None
    tasks: list[Task] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            tasks.append(_as_task(parse_json(line), len(tasks)))
        except json.JSONDecodeError as error:
            raise UsageError(
                f"{path}, line {number}, is not JSON ({error.msg}). Write one task a "
                'line: {"instruction": "..."}'
            ) from None
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
    if not tasks:
        raise UsageError(f"{path} holds no task.")
    return tasks


def files_of(task: Task) -> dict[str, str]:
    """Check the paths of a task's initial files; return the files' texts by path."""
    files = task.initial_state.get("files", {})
    if not isinstance(files, dict) or not all(
        isinstance(part, str) for pair in files.items() for part in pair
    ):
        raise UsageError(
            f"Task {task.id!r}: initial_state.files must map paths to texts."
        )
    check_files(files)
    return dict(files)


def _as_task(value: Any, index: int) -> Task:
    if isinstance(value, Task):
        return value
    if isinstance(value, str):
        value = {"instruction": value}
    if not isinstance(value, Mapping):
        raise UsageError(f"Task {index} is {value!r}; give text or a mapping.")
    usual = {"id": f"task-{index:05d}", "split": Split.TEST, "seed": index}
    try:
        return Task.model_validate({**usual, "family": "", "level": 1, **value})
    except ValidationError as error:
        raise UsageError(f"Task {index}: {first_problem(error)}.") from None


RewardFunction = Callable[
    [Task, Trajectory], float | Reward | Awaitable[float] | Awaitable[Reward]
]
"""``reward(task, trajectory)``, sync or async; returns a number or a Reward."""


class FunctionEnding(Ending):
    """Scores trajectories with the user's reward function.

    If ``function`` is None, there is no reward. A rollout without an answer fails. A
    function that is not async runs in a thread.
    """

    def __init__(self, function: RewardFunction | None) -> None:
        self._function = function

    async def score(
        self, episode: Episode, environment: Environment, trajectory: Trajectory
    ) -> Trajectory:
        """Return the trajectory with the reward of the user's function."""
        if trajectory.reason is None and not trajectory.answer:
            trajectory.status = RolloutStatus.FAILED
            trajectory.reason = Reason(kind="empty answer")
        if self._function is None:
            return trajectory
        try:
            found = await call(self._function, episode.task, trajectory)
        except Exception as error:  # user code
            raise RewardError(f"{type(error).__name__}: {error}") from error
        if not isinstance(found, Reward | int | float):
            raise RewardError(
                f"the reward function returned {found!r}, not a finite number"
            )
        reward = found if isinstance(found, Reward) else Reward(float(found), True)
        if problem := reward_problem(reward, (-math.inf, math.inf)):
            raise RewardError(f"the reward function returned {problem}")
        if isinstance(found, Reward):
            return trajectory.scored(found)
        return trajectory.model_copy(update={"reward": float(found)})


Model = Llm | Endpoint | Trained | str
"""The model that answers; see ``llm`` of :func:`run_rollouts`."""
_MOST_STANDSTILL_S = 10.0
_CANCELLED = Reason(kind="cancelled", detail="the batch was ended")


@dataclass(frozen=True, repr=False)
class RolloutBatch(Shown):
    """The results of a batch of rollouts.

    Attributes:
        trajectories: One per task, in the tasks' order.
        saved: The file that the trajectories were appended to, or None.
        cached: A sentence that says how many answers came from the cache; None without
            a cache.
    """

    trajectories: list[Trajectory]
    saved: Path | None = None
    cached: str | None = None

    @cached_property
    def summary(self) -> Summary:
        """Counts and means over the trajectories, e.g. rewards and tool calls."""
        return summarize(self.trajectories)

    def shown_as(self) -> Summary:
        """Return the summary, which is shown for a batch."""
        return self.summary


async def run_rollouts(
    tasks: Iterable[TaskLike],
    *,
    llm: Model,
    agent: str | RolloutAgent | type[RolloutAgent] | None = None,
    tools: Sequence[Any] | Mapping[str, Mapping[str, Any]] | None = None,
    reward: RewardFunction | Scenario | str | None = None,
    config: RolloutConfig | None = None,
    on_done: Callable[[Trajectory], None] | None = None,
    **settings: Any,
) -> RolloutBatch:
    """Let an agent attempt every task, many at a time.

    The failure of an agent, a model or a tool does not end the batch. A rollout ends as
    *succeeded* (it has an answer, and reached its scenario's goal), *failed* (no answer
    in ``max_steps``, an empty answer, or the goal was not reached) or *dropped* (a
    crash, a timeout, a malformed reply, a refused key, or an error in the reward).

    Args:
        tasks: Texts, mappings with ``instruction``, or :class:`Task` objects.
        llm: One of: ``async def llm(messages, **options)`` that returns text or an
            OpenAI-style message; ``openai:NAME``; a server's address ``http://…/v1``; a
            model to load into this process (``nano``, a model's folder or a trained
            agent).
        agent: Replaces ``config.agent``: a name, ``module:Class``, a class or an
            instance.
        tools: Replaces ``config.tools``: a list of names, your own functions and
            objects with ``@tool`` methods; or a mapping of names to settings.
        reward: A function ``reward(task, trajectory)``; or a scenario or its name, to
            use the scenario's environments, tools and reward.
        config: All other settings.
        on_done: Called with each trajectory after it ended and was saved.
        settings: Fields of :class:`RolloutConfig`; they override ``config``.

    Raises:
        UsageError: An argument is invalid; nothing was started.
        MissingExtraError: A model in this process needs the extra ``local``.
        SandboxUnavailableError: A tool needs a sandbox and none works on this machine,
            or none meets the scenario's requirements.
        OSError: The file ``save`` cannot be written.
        asyncio.CancelledError: The caller was cancelled. Ended rollouts are saved, and
            running ones are saved as dropped.
    """
    if isinstance(agent, str):
        settings["agent"] = agent
    if isinstance(tools, str):
        raise UsageError(f"tools is {tools!r}; give a list, e.g. [{tools!r}].")
    own: list[Any] = []
    if isinstance(tools, Mapping):
        settings["tools"] = dict(tools)
    elif tools is not None:
        settings["tools"] = [tool for tool in tools if isinstance(tool, str)]
        own = [tool for tool in tools if not isinstance(tool, str)]
    config = (config or RolloutConfig()).replaced(**settings)
    chosen = get_agent(config.agent if agent is None else agent)
    todo = as_tasks(tasks)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(chosen.close)
        runs = await _opened(stack, config, chosen, own, llm, reward)
        watching: list[Callable[[Trajectory], object]] = []
        if config.save is not None:
            watching.append(stack.enter_context(TrajectoryWriter(config.save)).write)
        if in_notebook():
            bar = stack.enter_context(notebook_bar("rollouts", len(todo)))
            watching.append(lambda _: bar.update())
        if on_done is not None:
            watching.append(on_done)

        def ended(trajectory: Trajectory) -> None:
            for watch in watching:
                watch(trajectory)

        stack.enter_context(LoopWatch(min(config.timeout_s, _MOST_STANDSTILL_S)))
        made = await _run_all(runs, todo, ended)
        cached = None if runs.cache is None else runs.cache.summary
        return RolloutBatch(made, config.save, cached)


def run_rollouts_sync(tasks: Iterable[TaskLike], **options: Any) -> RolloutBatch:
    """Call :func:`run_rollouts` with the same arguments, and wait for the result.

    It also works inside a running event loop, e.g. in a notebook.

    Raises:
        UsageError: An argument is invalid.
        KeyboardInterrupt: Ctrl-C was pressed; ended rollouts are saved.
    """
    return in_background(run_rollouts(tasks, **options))


@dataclass(frozen=True)
class _Runs:
    """Settings that all rollouts of a batch share."""

    config: RolloutConfig
    drive: Drive
    llm: Llm
    create_environment: Callable[[Task], Environment]
    ending: Ending
    scenario: str
    system_prompt: str
    cache: AnswerCache | None = None
    batch: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def episode(self, task: Task, index: int) -> Episode:
        """Return a new episode: one attempt at a task.

        ``index`` is the task's position in the batch.
        """
        sampling = {
            "max_tokens": self.config.max_tokens_per_step,
            "temperature": self.config.temperature,
        }
        return Episode(
            task,
            rollout_id=f"{self.batch}-{index:05d}",
            scenario=self.scenario,
            max_turns=self.config.max_steps,
            llm=self.llm,
            options={key: n for key, n in sampling.items() if n is not None},
            system_prompt=self.system_prompt,
        )


async def _opened(
    stack: AsyncExitStack,
    config: RolloutConfig,
    agent: RolloutAgent,
    own: list[Any],
    llm: Model,
    reward: RewardFunction | Scenario | str | None,
) -> _Runs:
    """Open the model, and the scenario or the tools; closing ``stack`` closes them."""
    if isinstance(reward, str):
        reward = get_scenario(reward)
        stack.callback(reward.close)
    ending: Ending
    if isinstance(reward, Scenario):
        if own or config.tools:
            raise UsageError(
                f"The scenario {reward.name!r} brings its own tools: leave out tools."
            )
        if config.unsafe_local_exec:
            reward.unsafe_local_exec = True
        asked = reward.sandbox_config()
        if not asked.is_usual:  # else a sandbox is needed only when code is executed
            await asyncio.to_thread(tried, asked)
        name, prompt = reward.name, reward.system_prompt()
        create, ending = reward.create_environment, ScenarioEnding(reward)
    elif reward is None or callable(reward):
        named = config.tools
        if named is None:
            named = {} if own else {tool: {} for tool in agent.tools}
        toolbox = Toolbox(named, own, unsafe_local_exec=config.unsafe_local_exec)
        stack.push_async_callback(asyncio.to_thread, toolbox.close)
        await asyncio.to_thread(toolbox.open)
        name, prompt = "", agent.system_prompt

        def create(task: Task) -> Environment:
            return toolbox.bench(files_of(task))

        ending = FunctionEnding(reward)
    else:
        raise UsageError(
            f"reward is {reward!r}; give a function (task, trajectory) -> float, or a "
            "scenario."
        )
    prompt = prompt if config.system_prompt is None else config.system_prompt
    model, cache = await _opened_llm(stack, config, llm)
    return _Runs(config, agent.run, model, create, ending, name, prompt, cache)


async def _opened_llm(
    stack: AsyncExitStack, config: RolloutConfig, llm: Model
) -> tuple[Llm, AnswerCache | None]:
    """Return a function that calls the model ``llm``, and its cache or None."""
    if isinstance(llm, str) and not is_local(llm):
        llm = await asyncio.to_thread(resolve_model, llm)
    path, cache = config.cache_requests, None
    if path is not None and not isinstance(llm, Endpoint):
        raise UsageError(
            f"cache_requests = {str(path)!r} is for a model that servers answer for: "
            "PROVIDER:MODEL or an address."
        )
    if path is not None and config.temperature != 0:
        raise UsageError(
            f"cache_requests = {str(path)!r} keeps answers at temperature 0, and "
            f"temperature is {config.temperature or 'not set'}. Give --temperature 0."
        )
    if isinstance(llm, Endpoint):
        from agentgym.models.endpoint import EndpointLlm

        if path is not None:
            cache = AnswerCache(path, await asyncio.to_thread(weights_of, llm))
            stack.callback(cache.close)
        endpoint = EndpointLlm(llm, cache)
        stack.push_async_callback(endpoint.close)
        return endpoint, cache
    if isinstance(llm, Trained | str):
        return await _opened_policy(stack, llm), None
    if not callable(llm):
        raise UsageError(
            f"llm is {llm!r}; give an async function, an address such as "
            "'http://localhost:8000/v1', 'openai:gpt-4.1-mini', or 'nano'."
        )
    return llm, None


async def _opened_policy(stack: AsyncExitStack, model: Trained | str) -> Llm:
    """Load a policy into this process; a trained agent keeps its sampling settings."""
    from agentgym.plugins.collect.policy_llm import PolicyLlm

    load = partial(load_policy, model) if isinstance(model, str) else model.load_policy
    policy = await asyncio.to_thread(load)
    stack.push_async_callback(asyncio.to_thread, policy.close)
    if isinstance(model, str):
        return PolicyLlm(policy)
    spec = model.spec
    return PolicyLlm(policy, temperature=spec.temperature, max_tokens=spec.max_tokens)


async def _run_all(
    runs: _Runs, tasks: Sequence[Task], ended: Callable[[Trajectory], None]
) -> list[Trajectory]:
    """Run all tasks; call ``ended`` with each trajectory as soon as it is complete."""
    done: dict[int, Trajectory] = {}
    running: dict[int, Episode] = {}
    waiting = iter(enumerate(tasks))

    def end(index: int, trajectory: Trajectory) -> None:
        running.pop(index, None)
        done[index] = trajectory
        ended(trajectory)

    async def work() -> None:
        for index, task in waiting:
            running[index] = episode = runs.episode(task, index)
            trajectory = await run_episode(
                episode,
                runs.drive,
                create_environment=runs.create_environment,
                ending=runs.ending,
                timeout_s=runs.config.timeout_s,
            )
            end(index, trajectory)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(runs.config.concurrency, len(tasks))):
                group.create_task(work())
    except asyncio.CancelledError:
        for index, episode in list(running.items()):  # other tasks never began
            end(index, episode.trajectory(RolloutStatus.DROPPED, _CANCELLED))
        raise
    except ExceptionGroup as group_error:  # saving failed, or on_done raised
        raise group_error.exceptions[0] from None
    return [done[index] for index in range(len(tasks))]
