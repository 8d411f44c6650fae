"""A worker process: runs many episodes at a time against the gateway.

Started as ``python -m agentgym.rollout.workers.worker`` with a :class:`WorkerSpec`
as JSON on standard input. It imports the framework and builds the agent once, claims
rollouts from the gateway by waiting (no polling), and reports every episode's tool
calls, reward and end. It tells the pool when it is ready, a beat each second, and
whom to blame should an episode block the process.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from contextvars import ContextVar
from dataclasses import asdict
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from agentgym.core.openai import ApiError
from agentgym.core.task import Task
from agentgym.core.tools import whole_text
from agentgym.core.trajectory import ModelCall, Reason, RolloutStatus, Trajectory
from agentgym.errors import AgentGymError, RolloutError, ScenarioError
from agentgym.integrations.base import Blueprint, EpisodeCut, RunnableAgent
from agentgym.integrations.episode import Episode
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.rollout.workers.assemble import assemble_steps
from agentgym.rollout.workers.control import ControlChannel
from agentgym.rollout.workers.loop_watch import LoopWatch
from agentgym.rollout.workers.time_limit import CutOffError, run_to_end
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.scoring import score

logger = logging.getLogger(__name__)

EXIT_BLOCKED = 70
"""Exit code of a worker whose event loop an episode blocked."""

_GIVEN_UP = (404, 409)
"""What the gateway answers about a rollout or an attempt that is over."""

_ROLLOUT: ContextVar[str | None] = ContextVar("agentgym_rollout", default=None)
"""The rollout that an asyncio task works for, also one that an agent started."""

_CLAIM_WAIT_S = 20.0
_MAX_REASON = 500
_BEAT_S = 1.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class WorkerSpec(BaseModel):
    """Everything a worker needs to know.

    Attributes:
        worker: Its name in the store.
        gateway: Base URL of the gateway, and its key.
        model: Name of the policy.
        concurrency: Episodes in flight.
        timeout_s: Wall seconds after which an episode is ended.
        memory_mb: Address space beyond which allocations fail in the worker.
    """

    model_config = ConfigDict(extra="forbid")

    worker: str
    gateway: str
    api_key: str
    model: str
    scenario: str
    framework: str
    agent: str | None = None
    concurrency: int = 64
    timeout_s: float = 60.0
    memory_mb: int = 8192
    unsafe_local_exec: bool = False


class Worker:
    """Runs episodes until it is told to stop.

    Args:
        spec: What to run and where.
        scenario: The scenario, its sandbox settings applied.
        agent: The agent, built once.
    """

    def __init__(
        self, spec: WorkerSpec, scenario: Scenario, agent: RunnableAgent
    ) -> None:
        import aiohttp

        self._spec = spec
        self._scenario = scenario
        self._agent = agent
        self._specs = {tool.name: tool for tool in scenario.tools()}
        self._running: set[asyncio.Task[None]] = set()
        self._http = aiohttp.ClientSession(
            spec.gateway,
            connector=aiohttp.TCPConnector(limit=0),
            headers={"Authorization": f"Bearer {spec.api_key}"},
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def run(self) -> None:
        """Claim and run episodes until the gateway goes away.

        Raises:
            ExceptionGroup: The gateway refuses claims, or the end of an episode; what
                this worker was running is left for others.
        """
        import aiohttp

        try:
            async with asyncio.TaskGroup() as episodes:
                await self._run_claimed(episodes)
        except* aiohttp.ClientConnectionError:
            logger.info("the gateway is gone; worker %s ends", self._spec.worker)
        finally:
            await self._agent.close()
            await self._http.close()

    async def _run_claimed(self, episodes: asyncio.TaskGroup) -> None:
        while True:
            free = self._spec.concurrency - len(self._running)
            if free == 0:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                continue
            for rollout in await self._claim(free):
                episode = episodes.create_task(self._run_rollout(rollout))
                self._running.add(episode)
                episode.add_done_callback(self._running.discard)

    async def _claim(self, n: int) -> list[dict[str, Any]]:
        body = {"n": n, "worker": self._spec.worker, "wait_s": _CLAIM_WAIT_S}
        rollouts: list[dict[str, Any]] = await self._post("/api/rollouts/claim", body)
        return rollouts

    async def _run_rollout(self, rollout: dict[str, Any]) -> None:
        attempt = rollout["status"]["last_attempt_id"]
        path = f"/api/rollouts/{rollout['rollout_id']}/attempt/{attempt}"
        _ROLLOUT.set(rollout["rollout_id"])
        try:
            events = await run_to_end(
                self._run_episode(rollout, attempt, path), self._spec.timeout_s
            )
            report: dict[str, Any] = {"state": "succeeded", "events": events}
        except CutOffError as cut:
            report = _failed(cut.reason)
        except Exception as error:  # the agent's and the scenario's own code
            logger.warning("rollout %s crashed", rollout["rollout_id"], exc_info=True)
            report = _failed(Reason.of_error(error, _kind(error)))
        try:
            await self._finish(path, report)
        except Exception as error:  # e.g. an event that is no JSON
            logger.warning("%s was refused its end", path, exc_info=True)
            refused = Reason(kind="crash: its end was refused", detail=str(error))
            await self._finish(path, _failed(refused))

    async def _finish(self, path: str, report: dict[str, Any]) -> None:
        """Report the end of an attempt, unless it was given up meanwhile."""
        try:
            await self._post(f"{path}/finish", report)
        except ApiError as error:
            if error.status not in _GIVEN_UP:
                raise
            logger.info("%s was given up: %s", path, error)

    async def _run_episode(
        self, rollout: dict[str, Any], attempt: str, path: str
    ) -> list[dict[str, Any]]:
        """Run one episode and return its events: tool calls, then the reward."""
        task = Task.model_validate(rollout["input"])
        environment = self._scenario.create_environment(task)
        try:
            episode = Episode(
                rollout_id=rollout["rollout_id"],
                attempt=attempt,
                mode="train" if rollout["is_train"] else "val",
                tools={tool.spec.name: tool for tool in environment.tools()},
                user_reply=environment.user_reply,
            )
            episode.enter()
            started = time.perf_counter()
            ended: Reason | None = None
            try:
                await self._agent.run(task.instruction)
            except EpisodeCut as cut:
                ended = cut.reason
            calls = await self._get(f"{path}/calls")
            if not calls:
                raise RolloutError(
                    "the agent ended without calling the model through the gateway; "
                    "its model was not replaced"
                )
            trajectory = Trajectory(
                rollout_id=episode.rollout_id,
                scenario=self._scenario.name,
                task_id=task.id,
                family=task.family,
                level=task.level,
                steps=assemble_steps(
                    [ModelCall.model_validate(call) for call in calls],
                    episode.calls,
                    self._specs,
                ),
                status=RolloutStatus.SUCCEEDED,
                duration_s=time.perf_counter() - started,
            )
            reward = await asyncio.to_thread(
                score, self._scenario, task, environment, trajectory
            )
            events = [
                {"event_type": "tool_call", "data": call.model_dump(mode="json")}
                for call in trajectory.get_tool_calls()
            ]
            scored = {
                "value": reward.value,
                "source": "scenario",
                "reason": None if ended is None else ended.model_dump(),
                "score": asdict(reward),
                "duration_s": trajectory.duration_s,
            }
            return [*events, {"event_type": "reward", "data": scored}]
        finally:
            environment.close()

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        async with self._http.post(path, json=body) as response:
            return await _json(response)

    async def _get(self, path: str) -> Any:
        async with self._http.get(path) as response:
            return await _json(response)


async def _json(response: Any) -> Any:
    if response.status >= 400:
        told = f"{response.url} answered {response.status}: {await response.text()}"
        raise ApiError(response.status, told, "gateway")
    return orjson.loads(await response.read())


def _failed(reason: Reason) -> dict[str, Any]:
    """Return the report of an attempt that failed."""
    told = whole_text(reason.detail[:_MAX_REASON])
    return {"state": "failed", "reason": {"kind": reason.kind, "detail": told}}


def rollout_of(task: "asyncio.Task[Any] | None") -> str | None:
    """Return the rollout that an asyncio task works for, None if for none."""
    return None if task is None else task.get_context().get(_ROLLOUT)


def _kind(error: Exception) -> str:
    return "scenario" if isinstance(error, ScenarioError) else "crash"


def _limit_process(memory_mb: int) -> None:
    """Die with the parent, and make a memory blow-up fail inside its episode."""
    import ctypes
    import resource

    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    limit = memory_mb * 2**20
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit <= hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


async def _serve(spec: WorkerSpec, control: ControlChannel) -> None:
    scenario = get_scenario(spec.scenario)
    scenario.unsafe_local_exec = spec.unsafe_local_exec
    blueprint = Blueprint(
        system_prompt=scenario.system_prompt(),
        tools=scenario.tools(),
        max_turns=scenario.max_turns,
        gateway=spec.gateway,
        api_key=spec.api_key,
        model=spec.model,
        connections=spec.concurrency,
        factory=spec.agent,
    )
    agent = FRAMEWORKS.get(spec.framework).create_environment(blueprint)
    worker = Worker(spec, scenario, agent)
    loop = asyncio.get_running_loop()
    running = asyncio.current_task()
    assert running is not None
    loop.add_signal_handler(signal.SIGTERM, running.cancel)

    def blocked() -> None:
        control.say(blocked=rollout_of(asyncio.current_task(loop)))
        os._exit(EXIT_BLOCKED)

    try:
        with LoopWatch(
            spec.timeout_s,
            blocked=blocked,
            turned=lambda: control.say(beat=True),
            every_s=_BEAT_S,
        ):
            control.say(ready=True)
            await worker.run()
    except asyncio.CancelledError:
        logger.info("worker %s was told to end", spec.worker)
    finally:
        scenario.close()


def main() -> int:
    """Run a worker to its end; return the exit code."""
    control = ControlChannel()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trainer's to handle
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    spec = WorkerSpec.model_validate_json(sys.stdin.readline())
    _limit_process(spec.memory_mb)
    try:
        asyncio.run(_serve(spec, control))
    except AgentGymError as error:
        control.say(error=str(error), kind=type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
