"""The rungs: remedies that ``improve`` tries, such as better prompts or training."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agentgym.core.config import TrainingConfig
from agentgym.core.files import write_atomically
from agentgym.core.prices import Prices
from agentgym.core.task import Split, Task
from agentgym.errors import (
    ComputeError,
    TrainingInterrupted,
    UsageError,
)
from agentgym.evaluate import events
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration, percent, plural
from agentgym.models.reference import is_remote, resolve_model
from agentgym.plugins.cloud.base import asked_unnamed
from agentgym.plugins.cloud.quote import Quote
from agentgym.plugins.cloud.rented import quotes_for
from agentgym.plugins.improve.bill import PROMPTS_FILE, Bill, Status
from agentgym.plugins.improve.search import (
    IN_FLIGHT,
    MOST_ANSWER,
    Parts,
    Reflector,
    open_bench,
    search,
)
from agentgym.plugins.improve.terms import Terms, prices_of
from agentgym.rollout.gateway.metered import Meter, MeteredEndpoint, Purse
from agentgym.rollout.prompt_overrides import Wording
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks
from agentgym.train.run_folder import RunFolder
from agentgym.train.trainer import Trainer
from agentgym.train.warm_start import can_imitate

_SEARCHED = 24
"""Most training tasks in the search for better prompts. The reflection model (the model
that writes the prompts) reads attempts at half of them."""
_SHOWN_TASKS = 3
"""Training tasks to attempt if no measurement has shown the agent's prompts."""
_READ = 6_000
"""Estimated prompt tokens of a request to the model that writes better prompts."""
_EACH = 8
"""Estimated rollouts per request to the model that writes better prompts."""
_START_S = 90.0
"""Estimated seconds to check and load everything, and to imitate known calls."""
_LEARNED = 1.5
"""Estimated time of a training episode, relative to a measured rollout."""
_KEPT_BACK = 1.5
"""Dollars reserved for the next measurement, per dollar that the last one cost."""


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

    def meter(self, prices: Prices | None = None) -> Meter:
        """Return a new counter of a model's tokens and dollars; None: the agent's."""
        prices = self.prices if prices is None else prices
        self.meters.append(Meter(self.purse, prices.prompt, prices.response))
        return self.meters[-1]

    @property
    def prices(self) -> Prices:
        """Prices of the agent's model."""
        return prices_of(self.config.model, self.terms.prices)

    @property
    def reflection_prices(self) -> Prices:
        """Prices of the model that writes better prompts."""
        return prices_of(self.terms.reflection or "", self.terms.reflection_prices)

    @property
    def scenario(self) -> Scenario:
        """The agent's tasks."""
        return get_scenario(self.config.scenario)

    def training_tasks(self, count: int) -> list[Task]:
        """Return training tasks for the search for better prompts."""
        return make_tasks(self.scenario, Split.TRAIN, self.config.seed, count)

    @property
    def held_out(self) -> int:
        """Number of rollouts of one measurement of the held-out tasks."""
        config = self.config
        sets = held_out_sets(self.scenario, config.seed, config.test_tasks)
        return config.eval_samples * len(next(iter(sets.values())))

    def measured(self, wording: Wording) -> tuple[Metrics, Parts]:
        """Measure the held-out tasks; return the metrics and the texts to improve."""
        with open_bench(self.config, self.meter(), self.progress) as bench:
            found, made = bench.held_out(wording, self.prices)
        return found, Parts(made)

    def seconds(self, rollouts: float) -> float:
        """Estimate the wall seconds of rollouts, several of them in flight."""
        latest = self.bill.latest
        if latest is None or not latest.seconds.n:
            return rollouts
        remote = is_remote(self.config.model)
        at_once = IN_FLIGHT if remote else self.config.in_flight
        return rollouts * latest.seconds.value / max(1, min(at_once, latest.rollouts))


class Price(NamedTuple):
    """The estimated price of a rung; ``dollars`` is None if it is not known before."""

    words: str
    dollars: float | None = 0.0


class Outcome(NamedTuple):
    """The result of a rung, with sentences for the user.

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


class AsItIs(LadderRung):
    """Measures the unchanged agent, with the model of the settings."""

    name = "as it is"

    def __init__(self) -> None:
        self.parts: Parts | None = None

    def price(self, climb: Climb) -> Price:
        """Describe the price of the held-out rollouts; unknown if tokens cost money."""
        rollouts = plural(climb.held_out, "rollout")
        what = f"{rollouts} of held-out tasks on {climb.config.model}"
        prices = climb.prices
        if not (prices.prompt or prices.response):
            return Price(f"{what}, $0.00.")
        words = (
            f"{what}, at ${prices.prompt:g} and ${prices.response:g} per million "
            "tokens read and written; how many that takes is measured by it."
        )
        return Price(words, None)

    def run(self, climb: Climb) -> Outcome:
        """Measure, and keep the agent's texts for the search for better ones."""
        found, self.parts = climb.measured(Wording())
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
        count = terms.searched + climb.held_out
        asked = terms.searched // _EACH
        own = climb.prices
        each: float | None = 0.0
        if own.prompt or own.response:
            each = latest.cost.value if latest is not None and latest.cost.n else None
        dollars = count * (each or 0.0)
        dollars += asked * climb.reflection_prices.cost(_READ, MOST_ANSWER)
        words = (
            f"{plural(count, 'rollout')} and about {plural(asked, 'request')} to "
            f"{terms.reflection}, about ${dollars:.2f} and "
            f"{duration(climb.seconds(count))}."
        )
        return Price(words, None if each is None else dollars)

    def run(self, climb: Climb) -> Outcome:
        """Search on training tasks; use the found texts unless held-out tasks fall."""
        config, terms = climb.config, climb.terms
        path = climb.bill.folder / PROMPTS_FILE
        path.unlink(missing_ok=True)
        parts, before = self._before.parts, climb.bill.latest
        if parts is None:  # the measurement was made by an earlier process
            with open_bench(config, climb.meter(), climb.progress) as bench:
                tasks = climb.training_tasks(_SHOWN_TASKS)
                parts = Parts(bench.attempt("shown", tasks, Wording()))
        if not parts.texts:
            return Outcome(
                "the agent has no prompt or tool that is the same each time."
            )
        meter = climb.meter(climb.reflection_prices)
        asked = resolve_model(terms.reflection or "")
        reflector = Reflector(MeteredEndpoint.of(asked, meter))
        paid = before.cost.value * before.rollouts if before and before.cost.n else 0.0
        opened = open_bench(config, climb.meter(), climb.progress)
        with climb.purse.kept_back(_KEPT_BACK * paid), opened as bench:
            found = search(
                bench,
                parts,
                climb.training_tasks(_SEARCHED),
                reflector,
                rollouts=terms.searched,
                seed=config.seed,
            )
        done = f"{plural(reflector.asked, 'request')} to {terms.reflection}."
        if reflector.problem:
            done = f"{done} {reflector.problem}"
        if not found:
            return Outcome(f"no text did better than the agent's own; {done}")
        write_atomically(path, found.text)
        after, _ = climb.measured(found)
        changed = plural(len(found.prompts) + len(found.tools), "text")
        if before is not None and after.pass_1 < before.pass_1:
            worse = path.with_name("prompts-not-used.json")
            path.replace(worse)
            return Outcome(
                f"{changed} did better in training tasks, and on held-out ones worse, "
                f"{percent(after.pass_1.value)} against {percent(before.pass_1.value)}"
                f": not used, see {worse}; {done}",
                before,
            )
        self.restore(climb)
        return Outcome(f"{changed} changed, in {path}; {done}", after)

    def restore(self, climb: Climb) -> None:
        """Put the better prompts, if a search found any, into the agent's settings."""
        if (path := climb.bill.prompts) is not None:
            text = path.read_text(encoding="utf-8")
            climb.config = climb.config.replaced(prompts=text)


class _Training(LadderRung):
    """A remedy that trains the model's weights on this machine."""

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
        if not can_imitate(climb.config, climb.scenario):
            return "Left out: the calls that tasks need are not known."
        return ""

    def price(self, climb: Climb) -> Price:
        """Estimate the time; a warm start on this machine costs no money."""
        rollouts = 2 * climb.held_out + climb.config.eval_tasks
        seconds = _START_S + climb.seconds(rollouts)
        return Price(f"on this machine, $0.00; about {duration(seconds)}.")


class OnPolicy(_Training):
    """Trains the model on its own attempts (on-policy RL)."""

    name = "training"

    def price(self, climb: Climb) -> Price:
        """Estimate the longest time; training on this machine costs no money."""
        episodes = climb.config.episodes
        seconds = _START_S + climb.seconds(_LEARNED * episodes + 2 * climb.held_out)
        return Price(
            f"on this machine, $0.00; at most about {duration(seconds)} for "
            f"{plural(episodes, 'rollout')} (--episodes limits it)."
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
