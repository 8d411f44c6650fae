"""Judging the tool calls of attempts by what their tasks need."""

from collections import Counter
from collections.abc import Sequence

from agentgym.core.needs import NeededCall
from agentgym.core.task import Task
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.evaluate.calls import JudgedCall, judge_calls
from agentgym.evaluate.confusion import ConfusionMatrix
from agentgym.evaluate.result import AttemptResult
from agentgym.scenarios.base import Scenario


def judge(
    scenario: Scenario, tasks: Sequence[Task], trajectories: Sequence[Trajectory]
) -> tuple[list[AttemptResult], ConfusionMatrix | None]:
    """Put every tool call into its class, and count which stood for which.

    Args:
        scenario: Knows the tools, and maybe which calls tasks need.
        tasks: Those attempted.
        trajectories: The attempts, in any order.

    Returns:
        One result per attempt, and the confusion matrix of the scored ones; None
        if the scenario does not say what tasks need.
    """
    specs = {spec.name: spec for spec in scenario.tools()}
    needs = {task.id: scenario.needed_calls(task) for task in tasks}
    attempts: list[AttemptResult] = []
    episodes: list[tuple[Sequence[NeededCall], Sequence[JudgedCall]]] = []
    for trajectory in trajectories:
        needed = needs[trajectory.task_id]
        judged: list[JudgedCall] = []
        if trajectory.status is not RolloutStatus.DROPPED:
            judged = judge_calls(trajectory, needed, specs)
            if needed is not None:
                episodes.append((needed, judged))
        attempts.append(
            AttemptResult(
                rollout_id=trajectory.rollout_id,
                task_id=trajectory.task_id,
                status=trajectory.status,
                reason=trajectory.reason,
                reward=trajectory.reward,
                calls=dict(Counter(call.kind for call in judged)),
            )
        )
    if not episodes:
        return attempts, None
    return attempts, ConfusionMatrix.of(list(specs), episodes)
