"""ContractResult: whether an agent keeps its contract, and why not."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentgym.core.trajectory import Trajectory
from agentgym.evaluate.intervals import UNMEASURED, Estimate
from agentgym.evaluate.metrics import Metrics, TaskResult, by_task
from agentgym.evaluate.result import Evaluation
from agentgym.evaluate.words import share_span
from agentgym.plugins.contract.contract import Limit
from agentgym.plugins.contract.recording import AgentChange, RecordedAnswers, changes


@dataclass(frozen=True)
class LimitResult:
    """A limit, and the measured share."""

    limit: Limit
    found: Estimate
    miss: str | None  # why it is not kept

    @property
    def words(self) -> str:
        """The measured share with its interval."""
        return share_span(self.found)


@dataclass(frozen=True)
class TaskOutcome:
    """The attempts at one task."""

    task: str
    won: int
    scored: int
    dropped: int
    seconds: float
    reasons: tuple[str, ...]  # of the attempts that failed, the most frequent first
    before: tuple[int, int] | None  # recorded: successful and scored attempts
    lost: str | None  # why the task breaks the contract


@dataclass(frozen=True)
class ContractResult:
    """The result of a contract's test; it is kept if nothing is wrong.

    Attributes:
        changes: Differences from the recorded version of the agent; empty if the model
            itself answered.
        calls: Number of model calls.
    """

    name: str
    evaluation: Evaluation
    limits: Sequence[LimitResult]
    tasks: Sequence[TaskOutcome]
    changes: Sequence[AgentChange] = ()
    replayed: bool = False
    calls: int = field(default=0)

    @property
    def problems(self) -> list[str]:
        """All that breaks the contract, a sentence each; empty if it is kept."""
        other = [change.sentence for change in self.changes if change.is_request]
        again = "The model would be asked something else than was recorded"
        return [
            *(f"{again}: {what}. Record again." for what in other),
            *(result.miss for result in self.limits if result.miss is not None),
            *(each.lost for each in self.tasks if each.lost is not None),
        ]


def judge(
    name: str,
    found: Evaluation,
    made: Sequence[Trajectory],
    limits: Sequence[Limit],
    recording: RecordedAnswers | None,
    *,
    replayed: bool,
) -> ContractResult:
    """Compare an evaluation and its attempts ``made`` with a contract's limits.

    A task that always held, in all recorded attempts, breaks the contract if none of
    the new attempts succeeds. In a replay, in which the model gives the same answers, a
    single failure does.
    """
    attempts = {each[0].task_id: each for each in by_task(made)}
    results = {each.task_id: each for each in found.metrics.by_task}
    held = {} if recording is None else recording.held
    return ContractResult(
        name=name,
        evaluation=found,
        limits=[_measured(limit, found, attempts) for limit in limits],
        tasks=[
            _outcome(results[task], attempts[task], held.get(task), replayed=replayed)
            for task in results
        ],
        changes=changes(recording, made) if replayed and recording is not None else (),
        replayed=replayed,
        calls=sum(len(each.model_calls) for each in made),
    )


def _measured(
    limit: Limit, found: Evaluation, attempts: dict[str, list[Trajectory]]
) -> LimitResult:
    metrics = found.metrics
    if limit.variant is not None:
        if limit.variant not in found.variants:
            return LimitResult(limit, UNMEASURED, f"{limit.name}: no faults were set.")
        metrics = found.variants[limit.variant]
    if limit.task is not None:
        # The interval of a single task is one over its attempts.
        alone = [
            each.model_copy(update={"task_id": f"{limit.task} {number}"})
            for number, each in enumerate(attempts[limit.task])
        ]
        scored = [each for each in alone if each.reward is not None]
        if not scored:
            said = f"Task {limit.task} was not measured."
            return LimitResult(limit, UNMEASURED, said)
        metrics = Metrics.of(scored, k=1)
    miss = limit.gate.miss(metrics)
    if miss is not None and (where := limit.task or limit.variant):
        miss = f"{where}: {miss}"
    return LimitResult(limit, metrics[limit.gate.metric], miss)


def _outcome(
    result: TaskResult,
    attempts: Sequence[Trajectory],
    before: tuple[int, int] | None,
    *,
    replayed: bool,
) -> TaskOutcome:
    failed = Counter(str(t.reason) for t in attempts if not t.success and t.reason)
    reasons = tuple(reason for reason, _ in failed.most_common())
    lost = None
    why = f": {reasons[0].rstrip('.')}" if reasons else ""
    if not result.attempts:
        lost = f"Task {result.task_id} was not measured{why}."
    elif before is not None and 0 < before[0] == before[1]:
        least = result.attempts if replayed else 1
        if result.successes < least:
            lost = (
                f"Task {result.task_id} held in all {before[1]} recorded attempts, and "
                f"now in {result.successes} of {result.attempts}{why}."
            )
    return TaskOutcome(
        task=result.task_id,
        won=result.successes,
        scored=result.attempts,
        dropped=result.dropped,
        seconds=sum(each.duration_s for each in attempts),
        reasons=reasons,
        before=before,
        lost=lost,
    )
