"""evaluate: measure a policy on tasks that it does not train on."""

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym.core.agent import AgentSpec
from agentgym.core.config import TrainingConfig
from agentgym.core.files import digest, scratch_folder
from agentgym.core.ledger import Ledger
from agentgym.core.needs import NeededCall
from agentgym.core.policy import Policy, RegisteredPolicy, ServedPolicy
from agentgym.core.prices import FREE, Prices
from agentgym.core.task import EVERY_SPLIT, Split, Task
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.lengths import paced
from agentgym.engines.registry import create_engine, paced_settings
from agentgym.engines.settings import base_source
from agentgym.errors import UnsupportedError, UsageError
from agentgym.evaluate import events
from agentgym.evaluate.advice import cut_words, overflow_words
from agentgym.evaluate.attempts import Rollouts, attempt
from agentgym.evaluate.baselines import CallEverything, DoNothing, run_trivial
from agentgym.evaluate.call_classes import (
    CallClass,
    ConfusionMatrix,
    JudgedCall,
    judge_calls,
)
from agentgym.evaluate.metrics import Metrics, by_task
from agentgym.evaluate.ranker import check_judge, is_judged, judging_words, open_judge
from agentgym.evaluate.result import AttemptResult, Evaluation
from agentgym.models.hub import require_config
from agentgym.models.reference import Endpoint, is_remote, resolve_model, weights_of
from agentgym.rollout.session import RolloutSession, check_rollouts, worker_count
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import (
    MOST_SEARCHED,
    needs_of,
    tasks_to_measure,
    with_id,
)
from agentgym.security.audit import default_log

if TYPE_CHECKING:
    from agentgym.models.answers import AnswerCache

_PROVIDER_IN_FLIGHT = 8


def evaluate(
    config: TrainingConfig,
    split: str,
    progress: events.Observer,
    *,
    subject: str,
    spec: AgentSpec | None = None,
    prices: Prices | None = None,
    baselines: bool = True,
    task: str | None = None,
    keep: list[Trajectory] | None = None,
    cache_requests: Path | None = None,
    session: Rollouts | None = None,
) -> Evaluation:
    """Measure the model ``config.model`` on tasks of a split.

    The model may be on a server; the split ``all`` takes tasks of every split.
    ``subject`` names the agent or model in the report. ``spec`` is the definition of
    the saved agent to measure; None for another model. Without ``prices``, a model on
    this machine costs nothing, and the cost of a server's model is unknown.
    ``baselines``: whether to measure agents without a model too. ``task`` is the id of
    a single task; None takes ``config.test_tasks`` tasks. The attempts in full are
    added to ``keep``. ``cache_requests`` is a file that keeps a server's answers.
    ``session`` runs the rollouts instead of one with ``config.model``.
    """
    scenario, _ = check_rollouts(config)
    check_judge(config)
    count = config.test_tasks if task is None else MOST_SEARCHED
    tasks = tasks_to_measure(scenario, split, config.seed, count)
    if task is not None:
        tasks = [with_id(tasks, task)]
    with ExitStack() as stack:
        endpoint = cache = None
        if session is None:
            opened = _opened_session(stack, config, cache_requests)
            session, config, endpoint, cache = opened
        if endpoint is None:
            prices = prices or FREE
        sets = {split: tasks, **scenario.variants(tasks)}
        count = sum(map(len, sets.values())) * config.eval_samples
        progress(events.PhaseStarted("evaluation", count))
        found = attempt(
            session, sets, config.eval_samples, lambda _: progress(events.RolloutDone())
        )
        notes = session.troubles
        ledger = Ledger()
        if is_judged(config):
            ranking = open_judge(config, ledger, progress)
            ranking.compare(by_task(found[split]))
    trajectories = found[split]
    if keep is not None:
        keep += [made for attempts in found.values() for made in attempts]
    notes += [] if cache is None else [cache.summary]
    measured, problems = (
        measure_baselines(scenario, tasks, config) if baselines else ({}, [])
    )
    attempts, confusion = judge(scenario, tasks, trajectories)
    calls = sum((Counter(attempt.calls) for attempt in attempts), Counter[CallClass]())
    metrics = Metrics.of(
        trajectories,
        k=config.eval_samples,
        prices=prices,
        needs=needs_of(scenario, tasks),
        replaced=config.token_prices,
    )
    share = metrics.answers_cut.value
    full = overflow_words(trajectories, config.model)
    cut = filter(None, [cut_words(share, config.answer_tokens), full])
    return Evaluation(
        subject=subject,
        scenario=scenario.name,
        split=split,
        seed=config.seed,
        samples=config.eval_samples,
        framework=config.framework,
        endpoint=None if endpoint is None else endpoint.description,
        prices=prices,
        settings=config.model_dump(mode="json"),
        task_digest=digest(task.model_dump_json() for task in tasks),
        cached=0 if cache is None else cache.found,
        notes=[
            *_notes(subject, spec, scenario, split),
            *(*notes, *problems, *cut),
            *([judging_words(ledger.judging)] if ledger.judging else []),
        ],
        metrics=metrics,
        variants={
            name: Metrics.of(found[name], k=config.eval_samples, prices=prices)
            for name in sets
            if name != split
        },
        judging=ledger.judging,
        baselines=measured,
        calls={kind: calls[kind] for kind in CallClass if calls[kind]},
        confusion=confusion,
        attempts=attempts,
    )


def _opened_session(
    stack: ExitStack, config: TrainingConfig, cache_requests: Path | None
) -> "tuple[RolloutSession, TrainingConfig, Endpoint | None, AnswerCache | None]":
    """Open workers and the model; return them with the settings that fit the model."""
    policy: Policy | ServedPolicy | RegisteredPolicy | Endpoint
    endpoint = cache = None
    if is_remote(config.model):
        policy = endpoint = resolve_model(config.model)
        config = paced(config, in_flight=_PROVIDER_IN_FLIGHT)
        if cache_requests is not None:
            opened = _opened_cache(cache_requests, config, endpoint)
            cache = stack.enter_context(opened)
    elif cache_requests is not None:
        raise UnsupportedError(
            f"cache_requests = {str(cache_requests)!r} is for a model that servers "
            "answer for, PROVIDER:MODEL or an address. One in this process costs "
            "nothing."
        )
    else:
        require_config(base_source(config.model))
        config = paced_settings(config)
        engine = create_engine(config)
        stack.callback(engine.close)
        stack.enter_context(engine.sampling())
        policy = engine.policy
    folder = stack.enter_context(scratch_folder("eval"))
    workers, audit = worker_count(config), default_log()
    session = RolloutSession(config, policy, folder, workers, cache=cache, audit=audit)
    return stack.enter_context(session), config, endpoint, cache


def _opened_cache(
    path: Path, config: TrainingConfig, endpoint: Endpoint
) -> "AbstractContextManager[AnswerCache]":
    """Open the file ``cache_requests``, which keeps the server's answers."""
    from agentgym.models.answers import AnswerCache

    if config.private:
        raise UsageError(
            f"cache_requests = {str(path)!r} keeps answers, and private = true keeps "
            "them out of files: leave out one."
        )
    if config.eval_temperature != 0:
        raise UsageError(
            f"cache_requests = {str(path)!r} keeps answers at temperature 0, and "
            f"eval_temperature is {config.eval_temperature:g}. Give --temperature 0."
        )
    return closing(AnswerCache(path, weights_of(endpoint)))


def _notes(
    subject: str, spec: AgentSpec | None, scenario: Scenario, split: str
) -> list[str]:
    if spec is None:
        return []
    if spec.scenario == scenario.name:
        is_mixed = split in (EVERY_SPLIT, Split.TRAIN)
        message = f"Tasks that {subject} was trained on are among these."
        return [message] if is_mixed else []
    lent = "tools" if spec.agent else "prompt and tools"
    message = f"{subject} was trained on {spec.scenario}, not on {scenario.name}"
    return [f"{message}: its {lent} here are this scenario's."]


def measure_baselines(
    scenario: Scenario, tasks: Sequence[Task], config: TrainingConfig
) -> tuple[dict[str, Metrics], list[str]]:
    """Measure agents without a model, with one attempt per task."""
    scenario.unsafe_local_exec = config.unsafe_local_exec
    harmless = scenario.rehearsal()
    found: dict[str, Metrics] = {}
    problems: list[str] = []
    try:
        for agent in (DoNothing(), CallEverything(seed=1, from_instruction=True)):
            made = [run_trivial(harmless, task, agent) for task in tasks]
            if all(t.status is RolloutStatus.DROPPED for t in made):
                message = f"The {agent.name} agent could not be scored"
                problems.append(f"{message}: {made[0].reason}.")
            else:
                found[agent.name] = Metrics.of(made, k=1)
    finally:
        scenario.close()
    return found, problems


def judge(
    scenario: Scenario, tasks: Sequence[Task], trajectories: Sequence[Trajectory]
) -> tuple[list[AttemptResult], ConfusionMatrix | None]:
    """Find the class of every tool call, and compare called tools with needed tools."""
    needs = needs_of(scenario, tasks)
    attempts: list[AttemptResult] = []
    episodes: list[tuple[Sequence[NeededCall], Sequence[JudgedCall]]] = []
    for trajectory in trajectories:
        needed = needs.by_task[trajectory.task_id]
        judged: list[JudgedCall] = []
        if trajectory.status is not RolloutStatus.DROPPED:
            specs = needs.specs_of(trajectory.task_id)
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
    return attempts, ConfusionMatrix.of(
        list(needs.specs), episodes
    ) if episodes else None
