"""The ladder: check the settings, then try rungs (remedies) until the goal is met."""

import fcntl
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentgym.core.config import TrainingConfig
from agentgym.errors import AgentGymError, Interrupted, RunFolderError, UsageError
from agentgym.evaluate import events
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import percent
from agentgym.plugins.improve.bill import Bill, RungResult, Status, folder_of
from agentgym.plugins.improve.rungs import Climb, LadderRung, Outcome, Price, rungs
from agentgym.plugins.improve.terms import Terms, check_terms, own_model
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.gateway.metered import Purse
from agentgym.rollout.inspection import probed, require_trainable
from agentgym.rollout.session import check_rollouts
from agentgym.security.files import make_private_folder


def improve(
    config: TrainingConfig,
    terms: Terms,
    *,
    own: bool = False,
    progress: events.Observer = events.silent,
) -> Bill:
    """Improve an agent until it meets a goal; return the results and costs.

    Tries several remedies (rungs), the cheapest first; see
    :mod:`agentgym.plugins.improve`.

    ::

        terms = Terms(read_goal("pass_1=0.9"), max_cost=5)
        config = TrainingConfig.create(agent="app:graph", scenario="tasks.jsonl")
        print(improve(config, terms).ended)

    Args:
        config: The agent, its tasks, and the model to begin with.
        terms: The goal, the cost limit, and the model that writes better prompts.
        own: Whether to begin with the model that the agent's own code names, if it is a
            provider's and the provider's key is set.
        progress: Observer that receives events, e.g. the start of a remedy.

    Raises:
        UsageError: A setting cannot work; nothing was started or paid.
        RunFolderError: Another process uses the same folder, or the folder's bill
            cannot be read.
        Interrupted: Ctrl-C or SIGTERM. The results of finished rungs are kept; the same
            call continues after them.
    """
    config = located(config)
    scenario, _ = check_rollouts(config)
    if config.agent.reference is None:
        raise UsageError(
            "Whose agent? Name it with --agent module:name, or use `agentgym train` "
            "for a scenario's own."
        )
    if config.private:
        raise UsageError(
            "private = true keeps texts out of files, and `improve` writes the prompts "
            "that it tries and the rollouts that it learns from into its folder. Use "
            "`agentgym train` or `agentgym eval`, which keep none."
        )
    check_terms(terms, config, scenario)
    report = probed(config)
    if own and (model := own_model(report)) is not None:
        progress(events.Message(f"The agent has its own model, {model}."))
        config = config.replaced(model=model)
        check_terms(terms, config, scenario)
    require_trainable(config, report)
    goal = f"{terms.goal.metric}={terms.goal.least:g}"
    folder = folder_of(config)
    make_private_folder(folder)
    with open(folder / ".lock", "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(
                f"Another process works in {folder}. Wait for it, or end it."
            ) from None
        bill = Bill.open(folder, goal, terms.max_cost, config.model)
        purse = Purse(terms.max_cost, bill.dollars)
        return try_rungs(rungs(), Climb(config, terms, purse, bill, progress))


def try_rungs(rungs: Sequence[LadderRung], climb: Climb) -> Bill:
    """Try remedies (rungs) in order until the held-out tasks meet the goal.

    Rungs that an earlier process has finished are not tried again. Returns all results
    and costs.
    """
    bill = climb.bill
    for each in bill.rungs:  # from an earlier process, maybe with another goal
        if each.after is not None:
            each.status = _status(climb, each.after)
    done = {each.name: each for each in bill.rungs if each.after is not None}
    bill.rungs = [each for each in bill.rungs if each.dollars or each.name in done]
    climb.progress(events.Message(_plan_words(climb, rungs, done)))
    for place, rung in enumerate(rungs):
        found = done.get(rung.name)
        if found is not None:
            rung.restore(climb)
        else:
            found = _tried(climb, rung, rungs[place + 1 :], done)
        if found is None:
            break
        if found.after is not None and found.status == "met":
            bill.ended = _met_words(climb, rungs, place, found.after)
            break
    bill.ended = bill.ended or "No rung has met the goal."
    order = [rung.name for rung in rungs]
    bill.rungs.sort(key=lambda each: order.index(each.name))
    bill.save()
    return bill


def _plan_words(
    climb: Climb, rungs: Sequence[LadderRung], done: Mapping[str, RungResult]
) -> str:
    """List the rungs in order, and why some cannot run or need not run again."""
    parts = []
    for rung in rungs:
        why = "done" if rung.name in done else rung.skipped(climb).rstrip(".")
        parts.append(f"{rung.name} ({why})" if why else rung.name)
    return f"Plan, until one reaches the goal: {', then '.join(parts)}."


def _tried(
    climb: Climb,
    rung: LadderRung,
    later: Sequence[LadderRung],
    done: dict[str, RungResult],
) -> RungResult | None:
    """Try a remedy if it can be used and its cost is allowed; return the result.

    Returns None if no further remedy may be tried. ``done`` has results from an
    earlier process, by the remedy's name. Those of ``later`` remedies are removed,
    so that they are tried again: they did not build on this remedy's result.
    """
    if why := rung.skipped(climb):
        return _add(climb, rung, Outcome(why, status="skipped"))
    price = rung.price(climb)
    climb.progress(events.Message(f"{rung.name}: {price.words}"))
    if refusal := _refusal(climb, rung, price):
        climb.bill.ended = refusal
        return None
    undone = [done.pop(each.name) for each in later if each.name in done]
    if undone:
        climb.bill.take_back(undone)
    climb.meters.clear()
    began = time.monotonic()
    try:
        outcome = rung.run(climb)
    except (KeyboardInterrupt, Interrupted) as error:
        _add(climb, rung, Outcome("It was interrupted."), began)
        raise Interrupted(
            f"Interrupted in the rung {rung.name!r}; {_kept_words(climb.bill)} The "
            "same command goes on."
        ) from error
    except UsageError as error:
        outcome = Outcome(f"It could not be done: {error}")
    except AgentGymError as error:
        outcome = Outcome(f"It came to no end: {error}")
        if any(meter.is_spent for meter in climb.meters):
            climb.bill.ended = (
                f"The cap of ${climb.purse.cap:.2f} is reached. Raise --max-cost "
                "to go on."
            )
    found = _add(climb, rung, outcome, began)
    return None if climb.bill.ended else found


def _refusal(climb: Climb, rung: LadderRung, price: Price) -> str:
    """Return why a remedy may not start because of its cost; empty if it may."""
    if price.dollars == 0:
        return ""
    left, what = climb.purse.left, f"The rung {rung.name!r} was not started"
    if left <= 0 or (price.dollars is not None and price.dollars > left):
        return (
            f"{what}: {price.words} Of --max-cost ${climb.purse.cap:.2f} there are "
            f"${left:.2f} left."
        )
    if climb.terms.yes:
        return ""
    terms = price.words, f"Nothing is spent above ${left:.2f}, which is left."
    answer = climb.progress(events.Question("spend", terms, "Spend it?"))
    if answer is None:
        return (
            f"{what}, since this is not a terminal and the question cannot be "
            f"asked: {price.words} Give --yes to spend up to --max-cost."
        )
    return "" if answer else f"{what}, as you did not want it: {price.words}"


def _add(
    climb: Climb, rung: LadderRung, outcome: Outcome, began: float | None = None
) -> RungResult:
    """Save a rung's result and cost, and report its sentences."""
    status = outcome.status
    if outcome.after is not None:
        status = _status(climb, outcome.after)
    meters = climb.meters if began is not None else []
    result = RungResult(
        name=rung.name,
        status=status,
        words=outcome.words,
        before=None if status == "skipped" else climb.bill.latest,
        after=outcome.after,
        dollars=sum(meter.cost for meter in meters),
        prompt_tokens=sum(meter.prompt_tokens for meter in meters),
        response_tokens=sum(meter.response_tokens for meter in meters),
        seconds=0.0 if began is None else time.monotonic() - began,
    )
    climb.bill.rungs.append(result)
    climb.bill.save()
    if outcome.words:
        climb.progress(events.Message(f"{rung.name}: {outcome.words}"))
    return result


def _status(climb: Climb, found: Metrics) -> Status:
    return "met" if climb.terms.goal.miss(found) is None else "missed"


def _met_words(
    climb: Climb, rungs: Sequence[LadderRung], place: int, found: Metrics
) -> str:
    """Describe which remedy met the goal, its uncertainty, and the next one's price."""
    goal = climb.terms.goal
    share = found[goal.metric]
    name = rungs[place].name
    text = (
        f"The goal is met by {name!r}: {goal.metric} {percent(share.value)} of "
        f"{found.tasks} held-out tasks, 95 % interval {percent(share.low)} to "
        f"{percent(share.high)}."
    )
    if place == 0:
        text = f"{text} It was met before anything was changed."
    if replace(goal, by_low=True).miss(found) is not None:
        text = (
            f"{text} The interval reaches below the goal: more held-out tasks, or "
            "a higher goal, would make it surer."
        )
    for rung in rungs[place + 1 :]:
        if not rung.skipped(climb):
            price = rung.price(climb)
            return f"{text} The next rung, {rung.name!r}, would be: {price.words}"
    return text


def _kept_words(bill: Bill) -> str:
    done = [rung.name for rung in bill.rungs if rung.after is not None]
    return f"finished: {', '.join(done)}." if done else "no rung is finished."
