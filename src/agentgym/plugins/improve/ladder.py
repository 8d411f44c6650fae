"""Ladder: try remedies (rungs) until the goal is met, within the cost limit."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentgym.core.config import TrainingConfig
from agentgym.errors import AgentGymError, Interrupted, UsageError
from agentgym.evaluate import events
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import percent
from agentgym.plugins.improve.bill import Bill, RungResult, Status
from agentgym.plugins.improve.terms import Terms
from agentgym.rollout.gateway.metered import Meter, Purse


@dataclass
class Climb:
    """The state of one call of ``improve``, shared by all rungs (remedies to try).

    Attributes:
        config: The agent's settings, with absolute paths. A rung may change them for
            later rungs, e.g. the prompts.
        purse: The budget of all rungs together.
        meters: Counters of tokens and dollars, one per model that the running rung
            uses.
    """

    config: TrainingConfig
    terms: Terms
    purse: Purse
    bill: Bill
    progress: events.Observer
    meters: list[Meter] = field(default_factory=list)

    def meter(self, read: float, written: float) -> Meter:
        """Return a new counter of tokens and dollars for a model that a remedy uses."""
        self.meters.append(Meter(self.purse, read, written))
        return self.meters[-1]


@dataclass(frozen=True)
class Price:
    """The estimated price of a remedy that ``improve`` tries."""

    words: str
    dollars: float | None = 0.0
    is_free: bool = True


@dataclass(frozen=True)
class Outcome:
    """The result of a remedy, with sentences for the user.

    ``after`` has the metrics of the held-out tasks, which decide whether the goal is
    met. ``status`` is used only if ``after`` is None.
    """

    words: str
    after: Metrics | None = None
    status: Status = "ended"


class LadderRung(ABC):
    """One remedy, called rung, that ``improve`` tries, such as better prompts."""

    name: str

    def skipped(self, climb: Climb) -> str:
        """Return a sentence on why this remedy cannot be used; empty if it can."""
        return ""

    @abstractmethod
    def price(self, climb: Climb) -> Price:
        """Estimate the price of this remedy, without starting it."""

    @abstractmethod
    def run(self, climb: Climb) -> Outcome:
        """Try this remedy, and return its result.

        Money must be reserved in ``climb.purse``, the budget, before it is spent. For
        model calls that use a counter from :meth:`Climb.meter`, this is automatic.

        Raises:
            AgentGymError: The remedy failed. The next remedy is tried unless the cost
                limit was reached.
        """

    def restore(self, climb: Climb) -> None:
        """Apply this remedy's result from an earlier process to ``climb.config``."""


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
    if price.is_free:
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
    """Save a remedy's result and cost, and report its sentences.

    ``began`` is a value of ``time.monotonic()``; None if the remedy was skipped.
    """
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
