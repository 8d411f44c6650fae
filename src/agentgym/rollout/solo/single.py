"""One rollout on its own, from a fresh start to a trajectory, whatever happens."""

import logging
import time
from dataclasses import dataclass
from typing import Any

from agentgym.core.task import Task
from agentgym.core.tools import Tool
from agentgym.core.trajectory import Reason, Reward, RolloutStatus, Trajectory
from agentgym.errors import (
    ContextLengthError,
    ModelCallError,
    ProviderError,
    ReplyError,
    RewardError,
)
from agentgym.integrations.base import EpisodeCut
from agentgym.rollout.solo.agents.base import RolloutAgent
from agentgym.rollout.solo.attempt import Attempt
from agentgym.rollout.solo.config import RolloutConfig
from agentgym.rollout.solo.llm.reply import Llm
from agentgym.rollout.solo.scoring import RewardFunction, function_reward
from agentgym.rollout.solo.tasks import files_of
from agentgym.rollout.solo.toolbox import Toolbox
from agentgym.rollout.solo.toolbox.functions import call_in_thread, unique
from agentgym.rollout.solo.toolbox.workspace import AttemptWorkspace
from agentgym.rollout.workers.time_limit import CutOffError, run_to_end
from agentgym.scenarios.base import Environment, Scenario
from agentgym.scenarios.scoring import score

logger = logging.getLogger(__name__)

_MAX_REASON = 500
_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (ReplyError, "garbage reply"),
    (ProviderError, "refused key"),
    (ModelCallError, "model"),
    (RewardError, "reward"),
)


@dataclass(frozen=True)
class Setup:
    """What all rollouts of a batch share.

    Attributes:
        batch: What their ids start with.
        scenario: Whose environments, tools and reward are used; None for none.
        reward: Scores rollouts of no scenario; None leaves them without.
    """

    batch: str
    config: RolloutConfig
    agent: RolloutAgent
    llm: Llm
    toolbox: Toolbox
    scenario: Scenario | None = None
    reward: RewardFunction | None = None


class SingleRollout:
    """One attempt at one task.

    Args:
        setup: What it shares with others.
        task: The task.
        index: Its number in the batch.
    """

    def __init__(self, setup: Setup, task: Task, index: int) -> None:
        self._setup = setup
        self._task = task
        self._id = f"{setup.batch}-{index:05d}"
        self._started = time.perf_counter()
        self._attempt: Attempt | None = None
        self._workspace: AttemptWorkspace | None = None

    async def run(self) -> Trajectory:
        """Bring the rollout to its end and return its trajectory.

        An agent that does not end in time is cancelled; one that does not heed that
        either is left behind.

        Raises:
            asyncio.CancelledError: The whole batch is being ended.
        """
        self._started = time.perf_counter()
        try:
            return await run_to_end(self._work(), self._setup.config.timeout_s)
        except CutOffError as cut:
            return self.dropped(cut.reason)
        except Exception as error:  # noqa: BLE001 - recorded as the rollout's reason
            return self._ended_by(error)

    def dropped(self, reason: Reason) -> Trajectory:
        """Return what was recorded so far, as a dropped rollout."""
        return self._trajectory(RolloutStatus.DROPPED, reason)

    def _ended_by(self, error: Exception) -> Trajectory:
        """Return the trajectory of a rollout that an error ended."""
        if isinstance(error, ContextLengthError):
            why = Reason(kind="context_overflow", detail=str(error))
            return self._trajectory(RolloutStatus.FAILED, why)
        for kind, name in _KINDS:
            if isinstance(error, kind):
                return self.dropped(Reason(kind=name, detail=str(error)))
        logger.debug("rollout %s crashed", self._id, exc_info=error)
        return self.dropped(Reason.of_error(error))

    async def _work(self) -> Trajectory:
        environment = None
        setup = self._setup
        if setup.scenario is not None:
            environment = setup.scenario.create_environment(self._task)
        try:
            attempt = self._attempt = self._open(environment)
            cut: Reason | None = None
            answer: Any = None
            try:
                answer = await setup.agent.run(attempt)
            except EpisodeCut as ended:
                cut = ended.reason
            if not isinstance(answer, str | None):
                raise ReplyError(
                    f"the agent returned {type(answer).__name__}, not text"
                )
            if not cut and not answer and setup.scenario is None:
                cut = Reason(kind="empty answer")
            status = RolloutStatus.FAILED if cut else RolloutStatus.SUCCEEDED
            trajectory = self._trajectory(status, cut, answer)
            return await self._scored(trajectory, environment)
        finally:
            if environment is not None:
                environment.close()

    def _open(self, environment: Environment | None) -> Attempt:
        setup, agent = self._setup, self._setup.agent
        prompt = setup.config.system_prompt
        tools: list[Tool]
        if environment is not None and setup.scenario is not None:
            tools = unique(environment.tools())
            prompt = setup.scenario.system_prompt() if prompt is None else prompt
        else:
            self._workspace = setup.toolbox.workspace(files_of(self._task))
            tools = setup.toolbox.tools(self._workspace)
        return Attempt(
            self._task,
            llm=setup.llm,
            config=setup.config,
            tools=tools,
            system_prompt=agent.system_prompt if prompt is None else prompt,
            user_reply=_says_nothing if environment is None else environment.user_reply,
        )

    async def _scored(
        self, trajectory: Trajectory, environment: Environment | None
    ) -> Trajectory:
        setup = self._setup
        found: Reward | None = None
        if environment is not None and setup.scenario is not None:
            found = await call_in_thread(
                score, setup.scenario, self._task, environment, trajectory
            )
            value = found.value
        elif setup.reward is not None:
            value, found = await function_reward(setup.reward, self._task, trajectory)
        else:
            return trajectory
        if found is None:
            return trajectory.model_copy(update={"reward": value})
        return trajectory.scored(found)

    def _trajectory(
        self, status: RolloutStatus, reason: Reason | None, answer: str | None = None
    ) -> Trajectory:
        task, scenario = self._task, self._setup.scenario
        return Trajectory(
            rollout_id=self._id,
            scenario="" if scenario is None else scenario.name,
            task_id=task.id,
            family=task.family,
            level=task.level,
            steps=[] if self._attempt is None else list(self._attempt.steps),
            status=status,
            reason=reason and _cut_short(reason),
            duration_s=time.perf_counter() - self._started,
            answer=answer or None,
            changed_files={} if self._workspace is None else self._workspace.changed(),
        )


def _says_nothing(_: str) -> None:
    """Be a user who says no more."""


def _cut_short(reason: Reason) -> Reason:
    return Reason(kind=reason.kind, detail=reason.detail[:_MAX_REASON])
