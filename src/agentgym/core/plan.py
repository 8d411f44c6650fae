"""Says what a run would do, and refuses what cannot work before anything starts."""

import math
import os
from contextlib import suppress

from agentgym.core.config import TrainingConfig
from agentgym.core.machine import require_writable_home
from agentgym.core.progress import Plan
from agentgym.core.run_folder import RunFolder
from agentgym.core.task import Split
from agentgym.core.tracking import require_tracker
from agentgym.engines.registry import describe_engine
from agentgym.errors import ScenarioError, UnsupportedError, UsageError
from agentgym.integrations.factory import load_factory
from agentgym.integrations.registry import get_adapter
from agentgym.sandbox.config import SandboxConfig
from agentgym.sandbox.ladder import choose_rung
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.check.names import unknown_names
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks

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
    wrong = list(unknown_names(scenario))
    if wrong:
        raise ScenarioError(f"{scenario.name} cannot be trained on: {'; '.join(wrong)}")
    require_tracker(config.tracker)
    model, device = describe_engine(config)
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


def check_run_folder(config: TrainingConfig) -> None:
    """Refuse a folder that a new run could not take, and leave nothing behind.

    Raises:
        RunFolderError: As :meth:`RunFolder.create`, which is tried and undone.
    """
    folder = config.output / (config.name or "")
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        run = RunFolder.create(config)
        (run.path / "run.json").unlink()
        (run.path / "checkpoints").rmdir()
        absent = [run.path, *absent] if config.name is None else absent
    finally:
        for path in absent:  # the innermost first
            with suppress(OSError):  # another run has begun in it
                path.rmdir()


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
    _check_agent(config)
    rung = choose_rung(SandboxConfig(unsafe_local_exec=config.unsafe_local_exec))
    return scenario, rung.summary


def _check_agent(config: TrainingConfig) -> None:
    """Check that the user's agent is found, as every worker will look for it.

    Raises:
        UsageError: The factory cannot be imported, or the framework takes none.
    """
    if config.agent is None:
        return
    if config.framework == "native":
        raise UnsupportedError(
            f"--agent {config.agent} needs a framework; choose one with --framework."
        )
    try:
        load_factory(config.agent)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"Cannot import --agent {config.agent}: {type(error).__name__}: {error}."
        ) from error


def worker_count(config: TrainingConfig) -> int:
    """Return how many worker processes to run: by default one less than cores."""
    if config.workers is not None:
        return config.workers
    return max(1, min(8, len(os.sched_getaffinity(0)) - 1))
