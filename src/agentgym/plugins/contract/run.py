"""Run a contract's test: measure the agent or replay a recording, then judge it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from agentgym.core.background import ThreadsInContext, run_coroutine
from agentgym.core.config import TrainingConfig
from agentgym.core.trajectory import Reason, RolloutStatus, Trajectory
from agentgym.errors import ConfigError, UsageError
from agentgym.evaluate.evaluation import evaluate
from agentgym.evaluate.events import Observer
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.contract.contract import read_contract
from agentgym.plugins.contract.recording import RecordedAnswers, RecordedPolicy
from agentgym.plugins.contract.verdict import ContractResult, judge
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import gateway_settings
from agentgym.rollout.store.records import FIRST_ATTEMPT, NewRollout
from agentgym.rollout.store.store import Store
from agentgym.rollout.workers.pool import WorkerSpec
from agentgym.rollout.workers.worker import Worker, make_worker
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import tasks_to_measure
from agentgym.train.trained_agent import TrainedAgent
from agentgym.train.trainer import Trainer

# Settings that a saved agent brings, without which its replay is not the same.
_OF_SAVED = ("framework", "agent", "prompts")


def run_contract(
    path: Path,
    progress: Observer,
    *,
    record: bool = False,
    replay: bool = False,
    faults: str | None = None,
) -> ContractResult:
    """Test an agent against the contract at ``path``.

    ``record`` writes the model's answers into the contract's recording, ``replay``
    takes the answers of that file instead of asking a model. ``faults`` is the setting
    of that name, instead of the contract's.

    Raises:
        UsageError: The contract cannot be read, or a limit can never be reached.
    """
    contract = read_contract(path)
    settings = contract.config(path.parent).replaced(faults=faults)
    usual = f"{path.stem}.recording.jsonl"
    file = path.parent / (contract.recording or usual)
    if record and replay:
        raise UsageError("--record asks the model, --replay does not: leave out one.")
    if record and settings.private:
        raise ConfigError("--record keeps answers, and private = true forbids that.")
    recording = None
    if replay or (file.exists() and not record):
        recording = RecordedAnswers.load(file)
    if replay and recording is not None:
        settings = settings.replaced(**recording.settings)
    elif contract.agent is not None and contract.is_saved:
        saved = TrainedAgent.load(contract.agent)
        settings = settings.replaced(scenario=saved.same_tasks(settings.scenario))
    is_own = replay or not contract.is_saved
    config = located(settings, own_agent=is_own)
    scenario = get_scenario(config.scenario)
    split, count = contract.measured_split, settings.test_tasks
    tasks = tasks_to_measure(scenario, split, settings.seed, count)
    scenario.close()
    limits = contract.checked_limits([task.id for task in tasks])
    made: list[Trajectory] = []
    asked: dict[str, Any] = {"baselines": False, "keep": made}
    if replay and recording is not None:
        asked["subject"] = recording.subject
        with ReplaySession(config, recording) as session:
            found = evaluate(config, split, progress, session=session, **asked)
    else:
        agent = contract.agent if contract.is_saved else None
        trainer = Trainer(settings, progress=progress)
        found = trainer.evaluate(agent=agent, split=split, **asked)
    if record:
        kept = {name: found.settings[name] for name in _OF_SAVED}
        own = kept if contract.is_saved else {}
        RecordedAnswers.of(found, made, own).save(file)
    name = path.resolve().parent.name if path.stem == "contract" else path.stem
    return judge(name, found, made, limits, recording, replayed=replay)


NOT_RECORDED = Reason(kind="not recorded")
_AT_ONCE = 16


class ReplaySession:
    """Runs attempts with the answers that were recorded for the same tasks.

    A worker process would import the agent's framework again, which takes longer than
    all rollouts. So the agent runs in this process, with its tools and its reward, and
    asks a gateway in a thread.
    """

    def __init__(self, config: TrainingConfig, recording: RecordedAnswers) -> None:
        self._config = config
        self._recording = recording
        self._policy = RecordedPolicy(recording)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._config.agent.reference is not None:
            load_agent(self._config.agent.reference)
        self._store = self._stack.enter_context(Store(max_attempts=1))
        settings = gateway_settings(self._config)
        gateway = Gateway(self._store, policy=self._policy, settings=settings)
        self._gateway = self._stack.enter_context(gateway)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def troubles(self) -> list[str]:
        """An empty list: there are no model servers."""
        return []

    def delete(self, rollout_ids: Iterable[str]) -> None:
        """Do nothing: no rollout of an earlier process is left."""

    def run(
        self,
        requests: Sequence[RolloutRequest],
        on_done: Callable[[Trajectory], None],
    ) -> list[Trajectory]:
        """Run the rollouts; those without recorded answers are dropped."""
        return run_coroutine(self._run(requests, on_done))

    async def _run(
        self,
        requests: Sequence[RolloutRequest],
        on_done: Callable[[Trajectory], None],
    ) -> list[Trajectory]:
        spec = WorkerSpec.of(
            self._config,
            gateway=self._gateway.url,
            api_key=self._gateway.api_key,
            model=self._gateway.model_name,
        )
        worker = make_worker(spec)
        asyncio.get_running_loop().set_default_executor(ThreadsInContext())
        turns = asyncio.Semaphore(_AT_ONCE)
        samples = Counter[str]()

        async def attempt(request: RolloutRequest, sample: int) -> Trajectory:
            async with turns:
                made = await self._attempt(worker, request, sample)
            on_done(made)
            return made

        try:
            runs = []
            for request in requests:
                runs.append(attempt(request, samples[request.task.id]))
                samples[request.task.id] += 1
            return await asyncio.gather(*runs)
        finally:
            await worker.close()

    async def _attempt(
        self, worker: Worker, request: RolloutRequest, sample: int
    ) -> Trajectory:
        task = request.task
        recorded = self._recording.calls.get(task.id, ())
        if sample >= len(recorded):
            return Trajectory(
                rollout_id=request.rollout_id,
                scenario=self._config.scenario_name,
                task_id=task.id,
                family=task.family,
                status=RolloutStatus.DROPPED,
                reason=NOT_RECORDED,
            )
        self._policy.expect(request.rollout_id, recorded[sample])
        asked = NewRollout(
            rollout_id=request.rollout_id,
            input=task.model_dump(mode="json"),
            is_train=False,
        )
        self._store.create_rollouts([asked])
        [rollout] = self._store.claim("replay")
        return await worker.attempt(rollout.model_dump(mode="json"), FIRST_ATTEMPT)
