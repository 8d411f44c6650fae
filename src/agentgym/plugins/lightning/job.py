"""Job: run one rollout in its own process, for Agent Lightning's controller.

The controller starts a job for each rollout, as a local process or as a Kubernetes Job,
and passes the rollout's id in environment variables. The controller changes the
rollout's state. A job only reports events; its exit code is 0 if there is a reward,
else another code.
"""

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from agentgym.core.config import TrainingConfig
from agentgym.core.openai import ApiError
from agentgym.core.trajectory import NO_REASON, Reason, RolloutStatus, Trajectory
from agentgym.errors import AgentGymError, RolloutError, UsageError
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.store.records import ATTEMPT_FAILED
from agentgym.rollout.workers.loop_watch import LoopWatch
from agentgym.rollout.workers.pool import WorkerSpec
from agentgym.rollout.workers.worker import (
    EXIT_BLOCKED,
    Worker,
    attempt_path,
    events_of,
    limit_memory,
    make_worker,
)
from agentgym.security.audit import default_log

BASE_URL, KEY = "AGL_OPENAI_BASE_URL", "AGL_KEY"

_MODEL = "policy"  # the gateway has the model's real name
_ADDRESS = re.compile(
    r"(https?://[^/]+)/proxy/rollout/([^/]+)/attempt/([^/]+)/mode/(?:train|val)"
    r"/openai/v1/?"
)


@dataclass(frozen=True)
class Assignment:
    """The rollout that a job runs, and the gateway to report to."""

    gateway: str  # e.g. http://gateway:8080
    rollout_id: str
    attempt_id: str
    api_key: str  # of the gateway; empty if it requires none

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """Read the assignment from variables that Agent Lightning's controller sets."""
        address = variables.get(BASE_URL)
        if not address:
            raise UsageError(
                f"{BASE_URL} is not set. Agent Lightning's controller sets it for the "
                "processes that it starts; by hand, use agentgym rollout."
            )
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise UsageError(
                f"{BASE_URL} = {address!r} is not a rollout's address, as in "
                "http://HOST/proxy/rollout/ID/attempt/0/mode/train/openai/v1."
            )
        gateway, rollout_id, attempt_id = found.groups()
        return cls(gateway, rollout_id, attempt_id, variables.get(KEY, ""))


def run_job(config: TrainingConfig, assignment: Assignment) -> Trajectory:
    """Run a rollout to its end and report its tool calls and its reward."""
    spec = WorkerSpec.of(
        located(config),
        gateway=assignment.gateway,
        api_key=assignment.api_key,
        model=_MODEL,
        audit=default_log(),
    )
    limit_memory(spec.memory_mb)
    return asyncio.run(_run(spec, assignment))


async def _run(spec: WorkerSpec, assignment: Assignment) -> Trajectory:
    import aiohttp

    def blocked() -> None:
        sys.stderr.write(f"Error: the agent blocked for {spec.timeout_s:g} s.\n")
        sys.stderr.flush()
        os._exit(EXIT_BLOCKED)

    worker = make_worker(spec)
    try:
        with LoopWatch(spec.timeout_s, blocked=blocked):
            return await _attempt(worker, assignment)
    except (aiohttp.ClientConnectionError, ConnectionError) as error:
        message = f"The gateway {spec.gateway} cannot be reached: {error}"
        raise RolloutError(message) from error
    except ApiError as error:
        raise RolloutError(f"The gateway refuses: {error}") from error
    finally:
        await worker.close()


async def _attempt(worker: Worker, assignment: Assignment) -> Trajectory:
    rollout_id, attempt = assignment.rollout_id, assignment.attempt_id

    async def post(event: dict[str, Any]) -> None:
        await worker.post(f"{attempt_path(rollout_id, attempt)}/events", event)

    async def fail(reason: Reason) -> RolloutError:
        failed = {"reason": reason.model_dump(), "charged": True}
        await post({"event_type": ATTEMPT_FAILED, "data": failed})
        return RolloutError(f"Rollout {rollout_id} was dropped: {reason}")

    rollout = (await worker.get(f"/api/rollouts/{rollout_id}"))["rollout"]
    try:
        ended = await worker.attempt(rollout, attempt)
    except RolloutError as error:
        raise await fail(Reason(kind="no task", detail=str(error))) from error
    if ended.status is RolloutStatus.DROPPED:
        raise await fail(ended.reason or NO_REASON)
    for event in events_of(ended):  # the reward comes last: a partial report has none
        await post(event)
    return ended


class RolloutJob:
    """The class to set as ``agent_class`` of Agent Lightning's local controller.

    Settings come from ``AGENTGYM_*`` variables, set by the controller's ``env_map``.
    """

    def run(self) -> None:
        """Run the rollout that the environment variables name; exit on a failure."""
        try:
            run_job(TrainingConfig.create(), Assignment.read())
        except AgentGymError as error:
            sys.stderr.write(f"Error: {error}\n")
            sys.exit(error.exit_code)
