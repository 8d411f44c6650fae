"""Finish a run: export the trained agent, and write the result."""

from collections.abc import Iterator
from contextlib import contextmanager

from agentgym.errors import TrainingInterrupted
from agentgym.evaluate.advice import next_steps
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import percent
from agentgym.models.folder import is_small
from agentgym.train.export import export_agent
from agentgym.train.result import Artifacts, TrainingResult
from agentgym.train.run_context import RunContext
from agentgym.train.warm_start.plans import can_imitate


def finish_run(
    run: RunContext, stopped: str, weights: int, after: dict[str, Metrics]
) -> TrainingResult:
    """Export the engine's weights, and write and return the run's result.

    ``stopped`` says why training ended. The weights had ``weights`` updates; ``after``
    has their metrics by held-out set, the main set first.
    """
    state, before, warmed = run.state, run.state.baseline, run.state.warmed
    main, *others = before
    saved = export_agent(run, weights, after[main])
    run.use.update()
    result = TrainingResult(
        scenario=run.scenario.name,
        config=run.config.model_dump(mode="json"),
        baseline=before[main],
        metrics=after[main],
        breakdown={name: (before[name], after[name]) for name in others},
        warm_start=warmed.get(main),
        warm_breakdown={name: warmed[name] for name in others if warmed},
        imitated=state.warm_start,
        criteria=run.config.goal or run.scenario.success_criteria(),
        validations=state.watch.history,
        next_steps=_next_steps(run, before[main], after[main]),
        stopped=stopped,
        steps=state.step,
        weights_step=weights,
        episodes=state.episodes,
        device=run.plan.device,
        wall_seconds=state.wall_seconds,
        cpu_seconds=state.cpu_seconds,
        peak_memory_mb=run.use.peak_memory_mb,
        ledger=state.ledger,
        forgetting=state.forgetting and state.forgetting.without_answers(),
        saved=saved,
        artifacts=Artifacts(run=run.folder.path, agent=run.folder.path / "agent"),
    )
    result.write()
    return result


def _next_steps(run: RunContext, before: Metrics, after: Metrics) -> list[str]:
    """Return further remedies to try if training did not help."""
    config = run.config
    return next_steps(
        before,
        after,
        remarks=[remark.text for remark in run.state.watch.remarks],
        may_imitate=not config.warm_start and can_imitate(config, run.scenario),
        is_small=is_small(config.model),
    )


@contextmanager
def best_weights_kept(run: RunContext) -> Iterator[None]:
    """Save the best validated weights as a version, not the default, if interrupted."""
    try:
        yield
    except (TrainingInterrupted, KeyboardInterrupt):
        if not run.interrupt.requested:
            raise
        run.interrupt.wait(0)  # this signal has been handled
        raise _with_best_weights(run, run.folder.interrupted()) from None


def _with_best_weights(
    run: RunContext, error: TrainingInterrupted
) -> TrainingInterrupted:
    """Save the best validated weights; return the error with the version's name."""
    best, found = run.folder.best_checkpoint(run.state), run.state.best_validation
    if best is None or found is None:
        return error
    run.engine.load_checkpoint(best)
    step = run.state.watch.best_step
    saved = export_agent(run, step, found, is_measured=False)
    return error.keeping(
        f"The best weights so far, of step {step} (validation "
        f"{percent(found.pass_1.value)}), are {saved.name}. {saved.name} is not the "
        "default: it was not measured on held-out tasks."
    )
