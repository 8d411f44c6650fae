"""The steps before training: a warm start, and questions to the user."""

from agentgym.errors import TrainingFailedError, UsageError
from agentgym.evaluate import events
from agentgym.evaluate.advice import doubts, warm_start_offer
from agentgym.evaluate.ranker import is_judged
from agentgym.train.run_context import RunContext
from agentgym.train.time_limit import RunClock
from agentgym.train.validation import Evaluator


def offer_warm_start(run: RunContext) -> str:
    """Offer a warm start if it would help; return an unanswered offer, else ""."""
    from agentgym.train.warm_start import can_imitate

    state, config = run.state, run.config
    if config.warm_start or state.step or not can_imitate(config, run.scenario):
        return ""
    offer = warm_start_offer(state.start)
    if not offer or config.yes:
        return offer
    answer = run.progress(events.Question("warm start", (offer,), "Do that?"))
    if answer:
        run.change_settings(config.replaced(warm_start=True))
    return offer if answer is None else ""


def warm_start(run: RunContext, evaluator: Evaluator, clock: RunClock) -> None:
    """Fine-tune on the calls that tasks need, then measure; skip finished parts."""
    from agentgym.train.warm_start import FineTuning

    state = run.state
    if state.warm_start is None:
        if state.step:
            raise UsageError(
                f"A warm start comes before the first step, and {run.folder.path} "
                f"has done {state.step}. Leave --warm-start out, or start a new run."
            )
        training = FineTuning(run, clock.warm_start_spent())
        clock.report_time_left(training.size)
        state.warm_start = training.run()
        run.save()
    if not state.warmed:
        with clock.measuring():
            state.warmed = evaluator.held_out("warmed", step=0)
        run.save()
    run.progress(events.WarmStartDone(state.warm_start.words(), state.start))


def ask_whether_to_train(run: RunContext, offer: str) -> None:
    """Ask the user whether to train if the first measurement gives little hope.

    ``offer`` is the unanswered text of :func:`offer_warm_start`, or empty.
    """
    state, config = run.state, run.config
    warmed = bool(state.warmed)
    found = doubts(state.start, judged=is_judged(config), warmed=warmed)
    remarks = [*found, offer] if offer else found
    has_result = warmed and state.start.pass_1.value > 0
    if remarks and (config.yes or has_result or not found):
        for remark in remarks:
            run.progress(events.Warned(remark))
    elif found and not run.progress(
        events.Question("train", tuple(remarks), "Train all the same?")
    ):
        either = " or with --warm-start" if offer else ""
        raise TrainingFailedError(
            f"{' '.join(remarks)} Training was not started; to train all the same, "
            f"`agentgym train --resume {run.folder.path} --yes`{either}.",
            resumable=False,
        )
