"""Says what a run would do, and refuses what cannot work before anything starts."""

import math

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.engines.registry import check_engine
from agentgym.errors import ScenarioError, UsageError
from agentgym.evaluate.criteria import flaws
from agentgym.evaluate.progress import Plan
from agentgym.rollout.session import check_rollouts, worker_count
from agentgym.scenarios.task_lists import held_out_sets, make_tasks
from agentgym.train.tracking import require_tracker
from agentgym.train.versions import Versions

# From docs/benchmarks.md: wall seconds on 2 cores with the nano policy.
_SECONDS_PER_EPISODE = {"native": 0.068, "langchain": 0.075}
_START_SECONDS = 15.0


def make_plan(config: TrainingConfig) -> Plan:
    """Check ``config`` without loading a model or writing anything.

    Raises:
        UsageError: A setting cannot work; says which and what to do.
        ScenarioError: The scenario asks for something that there is not, or lacks
            tasks.
        SandboxUnavailableError: No safe way to run code was found.
    """
    scenario, sandbox = check_rollouts(config)
    wrong = list(flaws(scenario))
    if wrong:
        raise ScenarioError(f"{scenario.name} cannot be trained on: {'; '.join(wrong)}")
    Versions(scenario.name)  # which its agent will be saved under
    require_tracker(config.tracker)
    model, device = check_engine(config)
    per_step = config.group_size * config.tasks_per_step
    if config.episodes < config.group_size:
        raise UsageError(
            f"episodes = {config.episodes} is less than one group of "
            f"{config.group_size}; raise --episodes or lower group_size."
        )
    steps = math.ceil(config.episodes / per_step)
    make_tasks(scenario, Split.TRAIN, config.seed, 1)
    sets = held_out_sets(scenario, config.seed, config.test_tasks).values()
    held_out = config.eval_samples * sum(map(len, sets))
    validation = config.eval_tasks * (steps // config.eval_every)
    if validation:
        make_tasks(scenario, Split.VALIDATION, config.seed, 1)
    rollouts = config.episodes + 2 * held_out + validation
    seconds = _SECONDS_PER_EPISODE.get(config.framework, 0.05) * rollouts
    return Plan(
        config=config,
        run=config.output
        / (config.name or f"{config.scenario_name}-{config.framework}-…"),
        model=model,
        device=device,
        sandbox=sandbox,
        workers=worker_count(config),
        steps=steps,
        estimated_seconds=_START_SECONDS + seconds,
    )
