"""Says what a run would do, and refuses what cannot work before anything starts."""

import math
import os

from agentgym.core.config import TrainingConfig
from agentgym.core.machine import require_writable_home
from agentgym.core.progress import Plan
from agentgym.engines.registry import describe_engine
from agentgym.errors import UsageError
from agentgym.integrations.registry import get_adapter
from agentgym.sandbox.config import SandboxConfig
from agentgym.sandbox.ladder import choose_rung
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario

# From docs/benchmarks.md: wall seconds on 2 cores with the nano policy.
_SECONDS_PER_EPISODE = {"native": 0.068, "langchain": 0.075}
_START_SECONDS = 15.0


def make_plan(config: TrainingConfig) -> Plan:
    """Check ``config`` without loading a model or writing anything.

    Raises:
        UsageError: A setting cannot work; says which and what to do.
        SandboxUnavailableError: No safe way to run code was found.
    """
    scenario, sandbox = check_rollouts(config)
    model, device = describe_engine(config)
    per_step = config.group_size * config.tasks_per_step
    if config.episodes < config.group_size:
        raise UsageError(
            f"episodes = {config.episodes} is less than one group of "
            f"{config.group_size}; raise --episodes or lower group_size."
        )
    steps = math.ceil(config.episodes / per_step)
    sets = scenario.held_out(config.seed, config.test_tasks).values()
    held_out = config.eval_samples * sum(map(len, sets))
    validation = config.eval_tasks * (steps // config.eval_every)
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


def check_rollouts(config: TrainingConfig) -> tuple[Scenario, str]:
    """Check all that rollouts need, apart from the model.

    Returns:
        The scenario, and the sandbox in words.

    Raises:
        UsageError: A setting cannot work; says which and what to do.
        SandboxUnavailableError: No safe way to run code was found.
    """
    require_writable_home()
    scenario = get_scenario(config.scenario)
    get_adapter(config.framework).check()
    rung = choose_rung(SandboxConfig(unsafe_local_exec=config.unsafe_local_exec))
    return scenario, rung.summary


def worker_count(config: TrainingConfig) -> int:
    """Return how many worker processes to run: by default one less than cores."""
    if config.workers is not None:
        return config.workers
    return max(1, min(8, len(os.sched_getaffinity(0)) - 1))
