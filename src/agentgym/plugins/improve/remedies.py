"""The rungs: remedies that ``improve`` tries, such as better prompts or training."""

from pathlib import Path

from agentgym.core.files import write_atomically
from agentgym.core.task import Split, Task
from agentgym.errors import (
    ComputeError,
    TrainingInterrupted,
    UsageError,
)
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration, percent, plural
from agentgym.models.reference import is_remote, resolve_model
from agentgym.plugins.cloud.base import asked_unnamed
from agentgym.plugins.cloud.quote import Quote
from agentgym.plugins.cloud.rented import quotes_for
from agentgym.plugins.improve.bench import open_bench
from agentgym.plugins.improve.bill import PROMPTS_FILE
from agentgym.plugins.improve.ladder import Climb, LadderRung, Outcome, Price
from agentgym.plugins.improve.search import MOST_ANSWER, Parts, Reflector, search
from agentgym.plugins.improve.terms import prices_of
from agentgym.rollout.gateway.metered import Meter, MeteredEndpoint
from agentgym.rollout.prompt_overrides import Wording
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks
from agentgym.train.run_folder import RunFolder
from agentgym.train.trainer import Trainer
from agentgym.train.warm_start.plans import can_imitate

_SEARCHED = 24
"""Most training tasks in the search for better prompts. The reflection model (the model
that writes the prompts) reads attempts at half of them."""
_READ = 6_000
"""Estimated prompt tokens of a request to the model that writes better prompts."""
_EACH = 8
"""Estimated rollouts per request to the model that writes better prompts."""
_REMOTE_IN_FLIGHT = 8
_START_S = 90.0
"""Estimated seconds to check and load everything, and to imitate known calls."""
_LEARNED = 1.5
"""Estimated time of a training episode, relative to a measured rollout."""
_KEPT_BACK = 1.5
"""Dollars reserved for the next measurement, per dollar that the last one cost."""


class AsItIs(LadderRung):
    """Measures the unchanged agent, with the model of the settings."""

    name = "as it is"

    def __init__(self) -> None:
        self.parts: Parts | None = None

    def price(self, climb: Climb) -> Price:
        """Describe the price of the held-out rollouts.

        If tokens cost money, the sum is not known before this first measurement.
        """
        config = climb.config
        count = _held_out(climb)
        what = f"{plural(count, 'rollout')} of held-out tasks on {config.model}"
        prices = prices_of(config.model, climb.terms.prices)
        if not (prices.prompt or prices.response):
            return Price(f"{what}, $0.00.")
        words = (
            f"{what}, at ${prices.prompt:g} and ${prices.response:g} per million "
            "tokens read and written; how many that takes is measured by it."
        )
        return Price(words, None, is_free=False)

    def run(self, climb: Climb) -> Outcome:
        """Measure the held-out tasks, and keep the agent's prompts and descriptions.

        ``parts`` keeps them for the search for better prompts.
        """
        found, self.parts = _measured(climb, Wording())
        return Outcome(f"measured on {climb.config.model}.", found)


class BetterPrompts(LadderRung):
    """Searches for better system prompts and tool descriptions (GEPA)."""

    name = "better prompts"

    def __init__(self, before: AsItIs) -> None:
        self._before = before

    def skipped(self, climb: Climb) -> str:
        """Return a message if no model for writing prompts is configured, else ""."""
        if climb.terms.reflection is None:
            return (
                "Left out: no reflection model is named, which would write better "
                "prompts (--reflection PROVIDER:MODEL or an address)."
            )
        return ""

    def price(self, climb: Climb) -> Price:
        """Estimate, from the last measurement, the price of the search for prompts."""
        terms, latest = climb.terms, climb.bill.latest
        count = terms.searched + _held_out(climb)
        asked = terms.searched // _EACH
        own = prices_of(climb.config.model, terms.prices)
        of_reflection = prices_of(terms.reflection or "", terms.reflection_prices)
        each, is_known = 0.0, True
        if own.prompt or own.response:
            is_known = latest is not None and bool(latest.cost.n)
            each = latest.cost.value if latest is not None and is_known else 0.0
        read, written = of_reflection.prompt, of_reflection.response
        dollars = count * each + asked * (_READ * read + MOST_ANSWER * written) / 1e6
        seconds = count * _seconds_each(climb)
        free = not any((own.prompt, own.response, read, written))
        words = (
            f"{plural(count, 'rollout')} and about {plural(asked, 'request')} to "
            f"{terms.reflection}, about ${dollars:.2f} and {duration(seconds)}."
        )
        return Price(words, None if free or not is_known else dollars, free)

    def run(self, climb: Climb) -> Outcome:
        """Search for better texts on training tasks, then measure the held-out tasks.

        If the share of solved held-out tasks falls, the new texts are not used.
        """
        config, terms = climb.config, climb.terms
        path = climb.bill.folder / PROMPTS_FILE
        path.unlink(missing_ok=True)
        parts, before = self._before.parts, climb.bill.latest
        if parts is None:  # the measurement was made by an earlier process
            parts = _shown(climb)
        if not parts.texts:
            return Outcome(
                "the agent has no prompt or tool that is the same each time."
            )
        prices = prices_of(terms.reflection or "", terms.reflection_prices)
        meter = climb.meter(prices.prompt, prices.response)
        asked = resolve_model(terms.reflection or "")
        reflector = Reflector(MeteredEndpoint.of(asked, meter))
        tasks = _tasks(climb)
        paid = before.cost.value * before.rollouts if before and before.cost.n else 0.0
        bench = open_bench(config, _meter(climb), climb.progress)
        with climb.purse.kept_back(_KEPT_BACK * paid), bench as opened:
            found = search(
                opened,
                parts,
                tasks,
                reflector,
                rollouts=terms.searched,
                seed=config.seed,
            )
        why = f" {reflector.problem}" if reflector.problem else ""
        done = f"{plural(reflector.asked, 'request')} to {terms.reflection}."
        if not found:
            return Outcome(f"no text did better than the agent's own; {done}{why}")
        write_atomically(path, found.text)
        after, _ = _measured(climb, found)
        changed = len(found.prompts) + len(found.tools)
        words = f"{plural(changed, 'text')} changed, in {path}; {done}{why}"
        if before is not None and after.pass_1 < before.pass_1:
            worse = path.with_name("prompts-not-used.json")
            path.replace(worse)
            return Outcome(
                f"{plural(changed, 'text')} did better in training tasks, and on "
                f"held-out ones worse, {percent(after.pass_1.value)} against "
                f"{percent(before.pass_1.value)}: not used, see {worse}; {done}{why}",
                before,
            )
        self.restore(climb)
        return Outcome(words, after)

    def restore(self, climb: Climb) -> None:
        """Put the better prompts, if a search found any, into the agent's settings."""
        if (path := climb.bill.prompts) is not None:
            text = path.read_text(encoding="utf-8")
            climb.config = climb.config.replaced(prompts=text)


class _Training(LadderRung):
    """A remedy that trains the model's weights on this machine.

    If ``imitates`` is true, the model only imitates known calls (a warm start).
    """

    imitates = False

    def skipped(self, climb: Climb) -> str:
        """Return why the model cannot be trained; empty if it can."""
        if is_remote(climb.config.model):
            return (
                f"Left out: {climb.config.model} answers behind a server, and training "
                "needs an open model: give --model nano, a folder or OWNER/NAME."
            )
        return ""

    def run(self, climb: Climb) -> Outcome:
        """Train in a new run, or continue the training run ``climb.bill.run``."""
        bill = climb.bill
        trainer = Trainer(climb.config, progress=climb.progress)
        episodes = 0 if self.imitates else climb.config.episodes
        yes = self.imitates or climb.terms.yes
        try:
            if bill.run and RunFolder(Path(bill.run)).can_go_on():
                result = trainer.train(resume=bill.run, episodes=episodes, yes=yes)
            else:
                result = trainer.train(
                    warm_start=not episodes,
                    episodes=episodes,
                    yes=yes,
                    goal={climb.terms.goal.metric: climb.terms.goal.least},
                )
        except TrainingInterrupted as error:
            bill.run = error.run
            raise
        bill.run, bill.agent = str(result.artifacts.run), result.saved.name
        done = f"{plural(result.steps, 'step')}; {result.stopped}; "
        if self.imitates:
            done = "" if result.imitated is None else f"{result.imitated.words()}; "
        return Outcome(f"{done}saved as {result.saved.name}.", result.metrics)


class WarmStartRung(_Training):
    """Trains the model to imitate the calls that training tasks need."""

    name = "warm start"
    imitates = True

    def skipped(self, climb: Climb) -> str:
        """Return why the model cannot imitate calls; empty if it can."""
        if why := super().skipped(climb):
            return why
        if not can_imitate(climb.config, get_scenario(climb.config.scenario)):
            return "Left out: the calls that tasks need are not known."
        return ""

    def price(self, climb: Climb) -> Price:
        """Estimate the time; a warm start on this machine costs no money."""
        rollouts = 2 * _held_out(climb) + climb.config.eval_tasks
        seconds = _START_S + rollouts * _seconds_each(climb)
        return Price(f"on this machine, $0.00; about {duration(seconds)}.")


class OnPolicy(_Training):
    """Trains the model on its own attempts (on-policy RL)."""

    name = "training"

    def price(self, climb: Climb) -> Price:
        """Estimate the longest time; training on this machine costs no money."""
        config = climb.config
        rollouts = _LEARNED * config.episodes + 2 * _held_out(climb)
        seconds = _START_S + rollouts * _seconds_each(climb)
        return Price(
            f"on this machine, $0.00; at most about {duration(seconds)} for "
            f"{plural(config.episodes, 'rollout')} (--episodes limits it)."
        )


class BiggerModel(LadderRung):
    """Asks for the price of training a bigger model on a rented GPU; rents nothing."""

    name = "bigger model"

    def price(self, climb: Climb) -> Price:
        """Return a price of $0: a quote is free."""
        return Price(f"a quote for {climb.terms.bigger} on a rented GPU; $0.00.")

    def run(self, climb: Climb) -> Outcome:
        """Ask each configured GPU provider for its price; report the lowest price."""
        quotes: list[Quote] = []
        problems: list[str] = []
        model = climb.terms.bigger
        for provider in asked_unnamed():
            config = climb.config.replaced(model=model, gpu=provider.name)
            try:
                quotes += quotes_for(config)
            except (ComputeError, UsageError) as error:
                problems.append(str(error))
        command = f"agentgym train --model {model} --gpu PROVIDER"
        if quotes:
            best = min(quotes, key=lambda quote: quote.total)
            words = (
                f"{' '.join(best.words()[:2])} `{command}` rents it, after a question."
            )
            return Outcome(words, status="quoted")
        why = (
            " ".join(problems) or "no provider of GPUs is set up (`agentgym gpu list`)."
        )
        return Outcome(f"No quote for {model}: {why}", status="quoted")


def rungs() -> list[LadderRung]:
    """Return all remedies that ``improve`` tries, the cheapest first."""
    first = AsItIs()
    return [first, BetterPrompts(first), WarmStartRung(), OnPolicy(), BiggerModel()]


def _meter(climb: Climb) -> Meter:
    """Return a new counter of the tokens and dollars of the agent's model."""
    prices = prices_of(climb.config.model, climb.terms.prices)
    return climb.meter(prices.prompt, prices.response)


def _measured(climb: Climb, wording: Wording) -> tuple[Metrics, Parts]:
    """Measure the held-out tasks; return the metrics and the texts that can change.

    Those texts are the agent's system prompts and tool descriptions.
    """
    prices = prices_of(climb.config.model, climb.terms.prices)
    with open_bench(climb.config, _meter(climb), climb.progress) as bench:
        found, made = bench.held_out(wording, prices)
    return found, Parts(made)


def _tasks(climb: Climb) -> list[Task]:
    config = climb.config
    scenario = get_scenario(config.scenario)
    return make_tasks(scenario, Split.TRAIN, config.seed, _SEARCHED)


def _shown(climb: Climb) -> Parts:
    """Attempt three training tasks, to find the agent's prompts and descriptions."""
    with open_bench(climb.config, _meter(climb), climb.progress) as bench:
        return Parts(bench.attempt("shown", _tasks(climb)[:3], Wording()))


def _held_out(climb: Climb) -> int:
    """Return how many rollouts one measurement of the held-out tasks takes."""
    config = climb.config
    scenario = get_scenario(config.scenario)
    sets = held_out_sets(scenario, config.seed, config.test_tasks)
    return config.eval_samples * len(next(iter(sets.values())))


def _seconds_each(climb: Climb) -> float:
    """Estimate the wall seconds per rollout, with several rollouts in flight."""
    latest = climb.bill.latest
    if latest is None or not latest.seconds.n:
        return 1.0
    config = climb.config
    at_once = _REMOTE_IN_FLIGHT if is_remote(config.model) else config.in_flight
    return latest.seconds.value / max(1, min(at_once, latest.rollouts))
