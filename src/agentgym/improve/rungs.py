"""The rungs: as it is, better prompts, warm start, training, a bigger model's quote."""

from contextlib import suppress
from pathlib import Path

from agentgym.compute.quote import Quote
from agentgym.compute.registry import asked_unnamed
from agentgym.compute.rented import quotes_for
from agentgym.core.files import make_private_folder
from agentgym.core.task import Split
from agentgym.errors import (
    AgentGymError,
    ComputeError,
    TrainingInterrupted,
    UsageError,
)
from agentgym.evaluate.criteria import CRITERIA
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration, percent, plural
from agentgym.improve.bench import Bench
from agentgym.improve.bill import PROMPTS_FILE
from agentgym.improve.ladder import Climb, Outcome, Price, Rung
from agentgym.improve.search import MOST_ANSWER, Parts, Reflector, search
from agentgym.improve.terms import prices_of
from agentgym.models.reference import is_remote, resolve_model
from agentgym.rollout.gateway.metered import Meter, MeteredEndpoint
from agentgym.rollout.wording import Wording
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trainer import Trainer
from agentgym.train.warm_start.plans import can_imitate

_SEARCHED = 24
"""Training tasks that the search sees at most, one half of them to reflect on."""
_READ = 6_000
"""Tokens of a request to the reflection model, about."""
_EACH = 8
"""Rollouts of the search for each request to the reflection model, about."""
_KEPT_BACK = 1.5
"""Share of what a measurement cost before that is kept for the next one."""


class AsItIs(Rung):
    """The agent as it is, on the model that it has or is given."""

    name = "as it is"

    def __init__(self) -> None:
        self.parts: Parts | None = None

    def price(self, climb: Climb) -> Price:
        """Return the price of the held-out rollouts."""
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
        """Measure it."""
        found, self.parts = _measured(climb, Wording())
        return Outcome(f"measured on {climb.config.model}.", found)


class BetterPrompts(Rung):
    """Prompts and descriptions of tools, found by reflective search."""

    name = "better prompts"

    def __init__(self, before: AsItIs) -> None:
        self._before = before

    def skipped(self, climb: Climb) -> str:
        """Return why there is no search."""
        if climb.terms.reflection is None:
            return (
                "Left out: no reflection model is named, which would write better "
                "prompts (--reflection PROVIDER:MODEL or an address)."
            )
        return ""

    def price(self, climb: Climb) -> Price:
        """Return the price of the search, by what the measurement before cost."""
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
        """Search on training tasks, measure on held-out ones, keep what is better."""
        config, terms = climb.config, climb.terms
        parts, before = self._before.parts, climb.bill.latest
        if parts is None:  # measured by an earlier process: a few attempts show them
            parts = _shown(climb)
        if not parts.texts:
            return Outcome("the agent has no prompt or tool that is the same each time.")
        prices = prices_of(terms.reflection or "", terms.reflection_prices)
        meter = climb.meter(prices.prompt, prices.response)
        asked = resolve_model(terms.reflection or "")
        reflector = Reflector(MeteredEndpoint.of(asked, meter))
        tasks = _tasks(climb)
        paid = before.cost.value * before.rollouts if before and before.cost.n else 0.0
        with climb.purse.kept_back(_KEPT_BACK * paid):
            with Bench(config, _meter(climb), climb.progress) as bench:
                found = search(
                    bench,
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
        path = climb.bill.folder / PROMPTS_FILE
        make_private_folder(path.parent)
        path.write_text(found.text, encoding="utf-8")
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
        """Let the next rungs have the prompts."""
        if (path := climb.bill.prompts) is not None:
            text = path.read_text(encoding="utf-8")
            climb.config = climb.config.replaced(prompts=text)


class _Training(Rung):
    """A rung that trains weights on this machine."""

    def skipped(self, climb: Climb) -> str:
        """Return why the model cannot be trained."""
        if is_remote(climb.config.model):
            return (
                f"Left out: {climb.config.model} answers behind a server, and training "
                "needs an open model: give --model nano, a folder or OWNER/NAME."
            )
        return ""

    def run(self, climb: Climb) -> Outcome:
        """Train, or go on with the run of the ladder."""
        trainer = Trainer(climb.config, progress=climb.progress)
        given = self._settings(climb)
        if climb.bill.run and not Path(climb.bill.run, "run.json").is_file():
            climb.bill.run = ""
        try:
            if climb.bill.run:
                given = {k: v for k, v in given.items() if k in ("episodes", "time")}
                result = trainer.train(resume=climb.bill.run, **given)
            else:
                result = trainer.train(**given)
        except TrainingInterrupted as error:
            if RunFolder(Path(error.run)).can_go_on():
                climb.bill.run = error.run
            raise
        climb.bill.run = str(result.artifacts.run)
        climb.bill.agent = result.saved.name
        return Outcome(self._words(result), result.metrics)

    def _settings(self, climb: Climb) -> dict[str, object]:
        raise NotImplementedError

    def _words(self, result: TrainingResult) -> str:
        raise NotImplementedError


class WarmStart(_Training):
    """Imitation of the calls that training tasks need."""

    name = "warm start"

    def skipped(self, climb: Climb) -> str:
        """Return why nothing can be imitated."""
        if why := super().skipped(climb):
            return why
        if not can_imitate(climb.config, get_scenario(climb.config.scenario)):
            return "Left out: the calls that tasks need are not known."
        return ""

    def price(self, climb: Climb) -> Price:
        """Return its time."""
        rollouts = 2 * _held_out(climb) + climb.config.eval_tasks
        seconds = rollouts * _seconds_each(climb)
        return Price(f"on this machine, $0.00; about {duration(seconds)}.")

    def _settings(self, climb: Climb) -> dict[str, object]:
        return {"warm_start": True, "episodes": 0, "yes": True}

    def _words(self, result: TrainingResult) -> str:
        known = result.imitated
        return f"{'' if known is None else known.words()} Saved as {result.saved.name}."


class OnPolicy(_Training):
    """Training on its own attempts."""

    name = "training"

    def price(self, climb: Climb) -> Price:
        """Return its time at most."""
        config = climb.config
        if config.time is not None:
            return Price(f"on this machine, $0.00; at most {duration(config.time)}.")
        rollouts = 2 * config.episodes + 2 * _held_out(climb)
        seconds = rollouts * _seconds_each(climb)
        return Price(
            f"on this machine, $0.00; at most about {duration(seconds)} for "
            f"{plural(config.episodes, 'episode')} (--time limits it)."
        )

    def _settings(self, climb: Climb) -> dict[str, object]:
        config, goal = climb.config, climb.terms.goal
        criteria = get_scenario(config.scenario).success_criteria()
        asked = {CRITERIA[name]: least for name, least in criteria.items() if name in CRITERIA}
        settings: dict[str, object] = {"episodes": config.episodes, "yes": True}
        settings["time"] = config.time
        if goal.least > asked.get(goal.metric, 0.0):
            settings["early_stop"] = False  # the scenario asks for less than the user
        return settings

    def _words(self, result: TrainingResult) -> str:
        steps = plural(result.steps, "step")
        return f"{steps}; {result.stopped}. Saved as {result.saved.name}."


class BiggerModel(Rung):
    """What training a bigger model on a rented GPU would cost; nothing is rented."""

    name = "bigger model"

    def price(self, climb: Climb) -> Price:
        """Return that it is a quote."""
        return Price(f"a quote for {climb.terms.bigger} on a rented GPU; $0.00.")

    def run(self, climb: Climb) -> Outcome:
        """Ask the providers that are set up for their prices."""
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
            words = f"{' '.join(best.words()[:2])} `{command}` rents it, after a question."
            return Outcome(words, status="quoted")
        why = " ".join(problems) or "no provider of GPUs is set up (`agentgym gpu list`)."
        return Outcome(f"No quote for {model}: {why}", status="quoted")


def rungs() -> list[Rung]:
    """Return the rungs in order, the cheapest first."""
    first = AsItIs()
    return [first, BetterPrompts(first), WarmStart(), OnPolicy(), BiggerModel()]


def _meter(climb: Climb) -> Meter:
    """Return a meter of the agent's model."""
    prices = prices_of(climb.config.model, climb.terms.prices)
    return climb.meter(prices.prompt, prices.response)


def _measured(climb: Climb, wording: Wording) -> tuple[Metrics, Parts]:
    """Measure the held-out tasks, and return the texts that the agent sent."""
    prices = prices_of(climb.config.model, climb.terms.prices)
    with Bench(climb.config, _meter(climb), climb.progress) as bench:
        found, made = bench.held_out(wording, prices)
    return found, Parts(made)


def _tasks(climb: Climb) -> list:
    config = climb.config
    scenario = get_scenario(config.scenario)
    return make_tasks(scenario, Split.TRAIN, config.seed, _SEARCHED)


def _shown(climb: Climb) -> Parts:
    """Return the texts that the agent sends, by a few attempts at training tasks."""
    with Bench(climb.config, _meter(climb), climb.progress) as bench:
        return Parts(bench.attempt("shown", _tasks(climb)[:3], Wording()))


def _held_out(climb: Climb) -> int:
    """Return the rollouts of one measurement of the held-out tasks."""
    config = climb.config
    scenario = get_scenario(config.scenario)
    sets = held_out_sets(scenario, config.seed, config.test_tasks)
    return config.eval_samples * len(next(iter(sets.values())))


def _seconds_each(climb: Climb) -> float:
    """Return the wall seconds of a rollout, as many at once as there were."""
    for rung in climb.bill.rungs:
        if rung.after is not None and rung.after.rollouts:
            return rung.seconds / rung.after.rollouts
    return 1.0
