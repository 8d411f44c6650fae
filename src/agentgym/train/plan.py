"""Make the plan of a run, and refuse unusable settings before anything starts."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agentgym.core.components import TRAIN_TOKENS, tokens_name
from agentgym.core.config import LONGEST_EPISODE, TrainingConfig
from agentgym.core.task import Split
from agentgym.engines.lengths import answer_words
from agentgym.engines.registry import check_engine, chosen_engine, paced_settings
from agentgym.engines.settings import base_source, objective_words
from agentgym.errors import MissingExtraError, ScenarioError, UsageError
from agentgym.evaluate import events
from agentgym.evaluate.advice import few_words
from agentgym.evaluate.criteria import CRITERIA, Gate, flaws
from agentgym.evaluate.ranker import check_judge, is_judged, plan_words
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models.folder import held_roles, model_source
from agentgym.models.hub import require_config
from agentgym.models.reference import is_remote
from agentgym.rollout.inspection import probed, require_trainable
from agentgym.rollout.prompt_length import prompt_notes
from agentgym.rollout.session import check_rollouts, worker_count
from agentgym.scenarios.answer_text import answer_notes
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.packs import is_tasks_file
from agentgym.scenarios.task_lists import held_out_sets, make_tasks
from agentgym.security.redaction import Redactor
from agentgym.train.batch import trained_components
from agentgym.train.export import Identity
from agentgym.train.places import expected_time
from agentgym.train.sampling import samples_calls
from agentgym.train.time_limit import require_time
from agentgym.train.tracking import require_tracker
from agentgym.train.warm_start import check_calls_known

_NO_CHECK = (
    "no check judges the attempts, so that success below says only that none made a "
    "forbidden call: compare answers before and after yourself"
)


def tried(plan: events.Plan, progress: events.Observer) -> events.Plan:
    """Test the user's agent, if there is one, and add a report on it to the plan.

    In a few trial episodes, a scripted model answers the agent. If the agent has tools
    that the scenario does not have, the user is asked whether they may really run.
    Raise UnsupportedError if the agent cannot be trained without changes.
    """
    config = plan.config
    if config.agent.reference is None:
        return plan
    report = probed(config)
    answers = {
        name: progress(
            events.Question(
                "tool",
                (f"The scenario has no tool named {name}, which the agent has.",),
                "May it really run? Else its answers are made up.",
            )
        )
        for name in report.undecided
    }
    if answers and None not in answers.values():
        allowed = [name for name, may_run in answers.items() if may_run]
        allowed += config.agent.allow_tools
        own = {"agent.own_tools": "stub", "agent.allow_tools": tuple(allowed)}
        config = config.replaced(**own)
        report = probed(config)
    require_trainable(config, report)
    return replace(plan, config=config, agent=report)


def make_plan(config: TrainingConfig) -> events.Plan:
    """Check ``config`` without loading a model or writing anything; return the plan."""
    config, engine_note = chosen_engine(config)
    _require_extras(config)
    if not is_remote(config.model):  # which check_engine refuses
        require_config(base_source(config.model))  # importing an agent takes longer
    scenario, sandbox = check_rollouts(config)
    wrong = list(flaws(scenario))
    if wrong:
        raise ScenarioError(f"{scenario.name} cannot be trained on: {'; '.join(wrong)}")
    for name, least in (config.goal or {}).items():
        if name not in CRITERIA:
            Gate.parse(f"{name}={least}")  # names the metrics that there are
    _refuse_secrets(scenario)
    saved_as = _saved_as(config, scenario)
    require_tracker(config.tracker)
    summary = check_engine(config)
    if roles := held_roles(Path(model_source(config.model))):
        raise UsageError(
            f"{config.model} holds adapters of {', '.join(roles)}, which are not "
            "trained further: give --model their base model."
        )
    given, config = config, paced_settings(config)
    if config.episodes < config.group_size and (
        config.episodes or not config.warm_start
    ):
        raise UsageError(
            f"episodes = {config.episodes} is less than one group of "
            f"{config.group_size}; raise --episodes or lower group_size."
        )
    check_judge(config)
    samples_calls(config, scenario)
    if not is_judged(config) and not scenario.has_check:
        raise UsageError(
            f"{scenario.name} has no check of its attempts (has_check is False), so "
            "that all earn the same: name a model that ranks them with --judge."
        )
    if not scenario.has_check:  # otherwise the first validation would end the run
        config = config.replaced(early_stop=False)
    if config.time is not None and config.deterministic:
        raise UsageError(
            "With a time, the number of steps depends on the machine's speed, so that "
            "a run cannot be deterministic: leave out --time or deterministic."
        )
    trained = trained_components(config, scenario)
    if (tokens := tokens_name(trained)) in TRAIN_TOKENS:  # for the run's record
        config = config.replaced(train_tokens=tokens)
    steps = math.ceil(config.episodes // config.group_size / config.tasks_per_step)
    make_tasks(scenario, Split.TRAIN, config.seed, 1)
    if config.warm_start:
        check_calls_known(scenario, config.seed)
    sets = list(held_out_sets(scenario, config.seed, config.test_tasks).values())
    validations = config.validations(steps) + config.warm_start
    if validations:
        make_tasks(scenario, Split.VALIDATION, config.seed, 1)
    return events.Plan(
        config=config,
        run=config.output
        / (config.name or f"{config.scenario_name}-{config.framework}-…"),
        model=summary.model,
        form=summary.form,
        path=summary.path,
        drops_reasoning=summary.drops_reasoning,
        device=summary.device,
        memory=summary.memory,
        sandbox=sandbox,
        workers=worker_count(config),
        steps=steps,
        held_out=config.eval_samples * sum(map(len, sets)),
        validations=validations,
        saved_as=saved_as,
        answers=answer_words(given, config),
        trained=tokens,
        judge=plan_words(config),
        expected=expected_time(config),
        objective=objective_words(config),
        notes=(
            *([engine_note] if engine_note else []),
            *_length_notes(given, config),
            *scenario.notes(),
            *filter(None, [few_words(len(sets[0]))]),
            *([_NO_CHECK] if not scenario.has_check else []),
            *answer_notes(scenario, trained),
            *prompt_notes(config, scenario),
        ),
    )


def _length_notes(given: TrainingConfig, config: TrainingConfig) -> list[str]:
    """Return a note if the GPU's memory limits ``max_episode_tokens``, else []."""
    most = config.episode_tokens
    if given.max_episode_tokens is not None or most == LONGEST_EPISODE:
        return []
    note = (
        f"model calls after {most:,} tokens of a rollout are not learned from: "
        f"updates with {LONGEST_EPISODE:,}, the usual limit, do not fit this GPU "
        "(max_episode_tokens)"
    )
    return [note]


def _saved_as(config: TrainingConfig, scenario: Scenario) -> str:
    """Return the name under which the trained agent will be saved."""
    identity = Identity.of_run(config, scenario)
    if config.name is not None:
        identity.require_free(config.agent_name)
    return identity.name(config.agent_name)


def _require_extras(config: TrainingConfig) -> None:
    """Raise MissingExtraError with all extras that are missing."""
    missing: dict[str, str] = {}

    def collect(check: Callable[[], object]) -> None:
        try:
            check()
        except MissingExtraError as error:
            missing.setdefault(error.extra, error.purpose)

    collect(lambda: FRAMEWORKS.get(config.framework).check())
    collect(lambda: require_tracker(config.tracker))
    if missing:
        with suppress(UsageError):  # it is checked again later, in its own place
            collect(lambda: check_engine(config))
        raise MissingExtraError(",".join(missing), " and ".join(missing.values()))


def _refuse_secrets(scenario: Scenario) -> None:
    """Raise if the system prompt or a tool's description has a secret."""
    kept = {"system prompt": scenario.system_prompt()}
    kept |= {f"tool {t.name!r}": json.dumps(t.to_openai()) for t in scenario.tools()}
    redactor = Redactor.of_environment()
    for what, text in kept.items():
        if redactor.written(text) != text:
            raise ScenarioError(
                f"The {what} of {scenario.name} holds a secret, and a trained agent's "
                "folder keeps it. Take it out, and let tools read it from an "
                "environment variable."
            )


def require_sound(config: TrainingConfig) -> None:
    """Check a time limit, and a tasks file as by ``agentgym scenarios check``."""
    require_time(config)
    if not is_tasks_file(config.scenario):
        return
    from agentgym.evaluate.check import check_scenario

    failed = [
        f"{found.name}: {found.why}"
        for found in check_scenario(config.scenario, seed=config.seed)
        if found.status == "fail"
    ]
    if failed:
        raise ScenarioError(
            f"{config.scenario_name} cannot be trained on: {'; '.join(failed)}."
        )
