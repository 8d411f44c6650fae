"""A batch in which some rollouts crash, hang or talk nonsense: the rest is saved."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from agentgym.rollout import run_rollouts_sync


async def llm(messages: list[dict[str, Any]], **options: Any) -> str | None:
    """Do what the task says."""
    match messages[-1]["content"]:
        case "crash":
            raise ConnectionError("the server went away")
        case "hang":
            await asyncio.sleep(3600)
        case "nonsense":
            return None
    return "All is well."


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "out.jsonl")
    tasks = ["work"] * 7 + ["crash", "hang", "nonsense"]
    batch = run_rollouts_sync(tasks, llm=llm, timeout_s=1.0, save=out)
    summary = batch.summary
    print(f"{summary.succeeded} succeeded, {summary.dropped} dropped")
    for trajectory in batch.trajectories:
        if trajectory.reason:
            print("-", trajectory.reason)
    print(f"saved: {len(out.read_text().splitlines())}")
