"""Fills a store until it is killed; says on standard output what it has flushed."""

import sys
from pathlib import Path

from agentgym.rollout.store.records import (
    NewEvent,
    NewRollout,
    RecordedCall,
    RolloutState,
)
from agentgym.rollout.store.store import Store
from tests.rollout.recording import record, recorded_by


def recorded(step: int, turn: int) -> RecordedCall:
    return record(
        version=step,
        request={"messages": [{"role": "user", "content": f"{step}"}] * (turn + 1)},
        prompt_ids=list(range(50 * (turn + 1))),
        response_ids=[step, turn],
        logprobs=[-0.5, -0.25],
    )


def main() -> None:
    store = Store(Path(sys.argv[1]), group_commit_s=0.002)
    for step in range(10_000):
        ids = [f"{step}-{i}" for i in range(4)]
        store.create_rollouts([NewRollout(rollout_id=i, input=step) for i in ids])
        store.claim("w", len(ids))
        for rollout_id in ids:
            for turn in range(3):
                recorded_by(store, rollout_id, recorded(step, turn))
            store.finish(
                rollout_id,
                "0",
                state=RolloutState.SUCCEEDED,
                events=[
                    NewEvent(event_type="tool_call", data={"step": step}),
                    NewEvent(event_type="reward", data={"value": step}),
                ],
            )
        store.flush()
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
