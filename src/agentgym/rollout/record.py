"""Read a rollout from the store as a Trajectory."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agentgym.core.task import Task
from agentgym.core.trajectory import (
    NO_REASON,
    ModelCall,
    Reason,
    Reward,
    RolloutStatus,
    Step,
    ToolCall,
    Trajectory,
)
from agentgym.errors import RolloutError, first_problem
from agentgym.rollout.store.reader import StoreReader
from agentgym.rollout.store.records import (
    ATTEMPT_FAILED,
    FIRST_ATTEMPT,
    RecordedEvent,
    Rollout,
    RolloutState,
    answered_calls,
)

_FIELD = "task"


def read_task(given: Any) -> Task:
    """Parse the task in a rollout's input.

    ``given`` is a task or its JSON text; or a row of a data set, whose field ``task``
    has the task or its JSON text. In a data set, JSON text is better: a table of nested
    tasks would add the keys of all tasks to each task.
    """
    if isinstance(given, dict) and _FIELD in given:
        given = given[_FIELD]
    try:
        if isinstance(given, str):
            return Task.model_validate_json(given)
        return Task.model_validate(given)
    except ValidationError as error:
        raise RolloutError(
            f"the rollout's input is not a task: {first_problem(error)}"
        ) from None


def as_row(task: Task) -> dict[str, str]:
    """Convert a task to a row of a trainer's data set; ``read_task`` parses the row."""
    return {_FIELD: task.model_dump_json()}


def stored_trajectories(store: StoreReader, only: str = "") -> Iterator[Trajectory]:
    """Yield the trajectories of a run's ended rollouts, in the order they ended."""
    sql = """SELECT rollout_id FROM rollouts
        WHERE terminal_order IS NOT NULL AND NOT hidden ORDER BY terminal_order"""
    with store.reading() as connection:
        names = [name for (name,) in connection.execute(sql)]
    for name in names:
        if only in name and (found := stored_rollout(store, name)) is not None:
            yield found[1]


def stored_rollout(
    store: StoreReader, rollout_id: str
) -> tuple[Rollout, Trajectory] | None:
    """Return a running or ended rollout and its trajectory; None for an unknown id."""
    rollout = store.rollout(rollout_id)
    if rollout is None:
        return None
    try:
        return rollout, to_trajectory(rollout, store.attempts(rollout_id))
    except ValueError as error:
        raise RolloutError(
            f"The record of rollout {rollout_id} cannot be read: {error}"
        ) from error


def to_trajectory(
    rollout: Rollout, attempts: Mapping[str, Sequence[RecordedEvent]]
) -> Trajectory:
    """Return a rollout's trajectory, built from the events of its last attempt.

    The trajectory has a reward if the rollout succeeded and reported one; otherwise it
    is dropped, with a reason. Another program may have queued the rollout without a
    group name (training compares the rollouts of a group); then the task's id is the
    group name.
    """
    task = read_task(rollout.input)
    last = rollout.status.last_attempt_id or FIRST_ATTEMPT
    events = attempts.get(last, ())
    calls = [call.to_model_call() for call in answered_calls(events)]
    outcomes = [
        ToolCall.model_validate(event.data)
        for event in events
        if event.event_type == "tool_call"
    ]
    scores = [e.data for e in events if e.event_type == "reward" and "score" in e.data]
    reward = scores[-1] if scores else None
    if rollout.status.state is not RolloutState.SUCCEEDED:
        reward = None
    for call, inner in zip(calls, (reward or {}).get("inner", ()), strict=False):
        call.rewards.update(inner)
    metadata = rollout.metadata
    trajectory = Trajectory(
        rollout_id=rollout.rollout_id,
        attempt=int(last),
        scenario=metadata.get("scenario", ""),
        task_id=task.id,
        family=task.family,
        level=task.level,
        group=metadata.get("group", task.id),
        steps=_interleave(calls, outcomes),
        status=RolloutStatus.SUCCEEDED if reward else RolloutStatus.DROPPED,
        reason=reward["reason"] if reward else _why_dropped(rollout, events),
        duration_s=reward["duration_s"] if reward else 0.0,
        changed_files=(reward or {}).get("changed_files", {}),
        end_state=(reward or {}).get("end_state", {}),
        unused_calls=_unused_calls(attempts, last),
    )
    return trajectory.scored(Reward(**reward["score"])) if reward else trajectory


def _unused_calls(
    attempts: Mapping[str, Sequence[RecordedEvent]], last: str
) -> dict[str, dict[str, int]]:
    """Count the model calls that are not in the trajectory, by agent and reason."""
    unused: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for attempt, events in attempts.items():
        requests = [event.call for event in events if event.call is not None]
        if attempt == last:
            for call in requests:
                if not call.ok:
                    why = call.error.get("code") or f"HTTP {call.http_status}"
                    unused[call.agent][f"no answer: {why}"] += 1
        elif requests:
            given_up = _why_given_up(events) or NO_REASON
            for call in requests:
                unused[call.agent][f"attempt given up: {given_up.kind}"] += 1
    return {role: dict(found) for role, found in unused.items()}


def _why_given_up(events: Sequence[RecordedEvent]) -> Reason | None:
    found = (e.data["reason"] for e in events if e.event_type == ATTEMPT_FAILED)
    return next((Reason(**reason) for reason in found), None)


def _why_dropped(rollout: Rollout, events: Sequence[RecordedEvent]) -> Reason:
    if reason := _why_given_up(events):
        return reason
    if rollout.status.state is RolloutState.SUCCEEDED:  # another program ended it
        return Reason(kind="no reward was reported")
    return Reason(kind="failed", detail=rollout.status.error_message or "")


def _interleave(calls: list[ModelCall], outcomes: list[ToolCall]) -> list[Step]:
    """Insert the outcome of each tool call after the model call that requested it.

    ``outcomes`` have the order of the requested calls. A requested call that the
    agent's code replaced by another call has no outcome. Tool calls that the agent's
    code made without a request come last.
    """
    steps: list[Step] = []
    rest = deque(outcomes)
    for call in calls:
        steps.append(call)
        for asked in call.tool_calls:
            if rest and rest[0].id in (asked.id, None):
                steps.append(rest.popleft())
    steps.extend(rest)
    return steps
