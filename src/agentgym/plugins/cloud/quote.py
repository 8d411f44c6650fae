"""Quote: estimate the cost of a run on a machine, before the machine is rented."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError, NoCapacityError, UsageError
from agentgym.evaluate.numbers import duration
from agentgym.plugins.cloud.base import Offer, in_cents
from agentgym.plugins.cloud.sizes import Need, needs_of
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_count

SETUP_MINUTES = 12.0
"""Minutes to boot a machine, and to install packages and a model, before training."""
ENGINE_MINUTES = 8.0
"""Further minutes to install vLLM's own environment, of about 20 GB."""
CALLS = 5
"""Assumed number of model calls per episode."""
FILLED = 0.4
"""Assumed mean length of a response, as a share of the limit ``max_tokens``."""
LEARNING = 2.0
"""Assumed time of a training episode, as a multiple of an evaluated episode's time."""
MARGIN = 3.0
"""Without ``max_cost``, a run is ended at this multiple of its estimated cost."""
SPEEDS = {
    "B200": 12_000,
    "H200": 9_000,
    "H100": 8_000,
    "PRO 6000": 6_000,
    "A100": 5_000,
    "5090": 4_500,
    "4090": 3_500,
    "6000 Ada": 3_500,
    "L40": 3_500,
    "A6000": 2_200,
    "A40": 2_000,
    "3090": 1_800,
    "A5000": 1_500,
    "A10": 1_500,
    "V100": 1_500,
    "L4": 1_000,
}
"""Assumed tokens per second of a model with a billion parameters, by GPU.

The keys are parts of GPU names; the first key that is part of a GPU's name counts. The
time per token is assumed to be proportional to the number of parameters."""
_SLOWEST = 800
LOCAL_SPEED = 1_000
"""Most tokens per second that the engine ``local`` samples on a GPU, with any model.

Measured on an H200: 1,224 to 923 with 0.5 to 7 billion parameters. The measured version
used cuDNN's attention, which is not used any more (docs/benchmarks.md)."""
_VLLM = (
    "The engine is vLLM, which is made to sample on a GPU: this one has room for it "
    "next to the learner, by estimate. It is installed there, and the machine decides "
    "once it has seen its GPU. --engine local leaves it out."
)
_LOCAL = (
    "The engine is local, which samples in the process of training, since no machine "
    "is to be had for vLLM: {}"
)
_LEAST_PARAMETERS = 2e8


@dataclass(frozen=True)
class Effort:
    """The rollouts and tokens of a run, from which its cost is estimated.

    Attributes:
        episodes: Number of rollouts to train on.
        measured: Number of further rollouts, which only evaluate the policy before,
            during and after training.
        tokens: Assumed number of tokens that the policy samples in one rollout.
        setup_minutes: Minutes from the launch of the machine to the start of training.
        limit_s: The run's time limit in seconds; infinite without a limit.
    """

    episodes: int
    measured: int
    tokens: float
    setup_minutes: float = SETUP_MINUTES
    limit_s: float = math.inf

    @classmethod
    def of(cls, config: TrainingConfig, done: int = 0, engine: str = "local") -> Self:
        """Estimate the remaining rollouts and tokens of a run.

        The run is assumed to train on all ``config.episodes``, of which ``done`` are
        done already.
        """
        scenario = get_scenario(config.scenario)
        held_out = held_out_count(scenario, config.seed, config.test_tasks)
        times = 2 + config.warm_start  # before, after the warm start, after training
        measured = times * config.eval_samples * held_out
        left = max(0, config.episodes - done)
        steps = math.ceil(left / config.group_size / config.tasks_per_step)
        measured += (steps // config.eval_every) * config.eval_tasks
        setup = SETUP_MINUTES + ENGINE_MINUTES * (engine != "local")
        tokens = CALLS * FILLED * config.answer_tokens
        return cls(left, measured, tokens, setup, config.time or math.inf)


@dataclass(frozen=True)
class Quote:
    """The estimated time and cost of a run on an offered machine.

    Attributes:
        offer: The machine type and its price.
        need: The GPU memory that the model needs.
        effort: The rollouts and tokens of the run.
        max_cost: The user's limit in $ at which the run is ended; None if not set.
        engine: A sentence on why AgentGym chose the engine; empty if the user chose it.
    """

    offer: Offer
    need: Need
    effort: Effort
    max_cost: float | None = None
    engine: str = ""

    @property
    def tokens_per_second(self) -> float:
        """Assumed number of tokens that this GPU samples per second with this model."""
        gpu = self.offer.gpu
        named = (each for each in SPEEDS if re.search(rf"\b{each}(?!\d)", gpu))
        billions = max(self.need.parameters, _LEAST_PARAMETERS) / 1e9
        speed = SPEEDS.get(next(named, ""), _SLOWEST) / billions
        return min(speed, LOCAL_SPEED) if self.need.engine == "local" else speed

    @property
    def hours(self) -> float:
        """Estimated hours to set up the machine and to train on all episodes."""
        episodes = LEARNING * self.effort.episodes + self.effort.measured
        seconds = episodes * self.effort.tokens / self.tokens_per_second
        seconds = min(seconds, self.effort.limit_s)
        return self.effort.setup_minutes / 60 + seconds / 3600

    @property
    def total(self) -> float:
        """Estimated cost in $, at the machine's current price."""
        return self.hours * self.offer.hourly

    @property
    def most(self) -> float:
        """Estimated cost in $, at the highest price to which a spot price may rise."""
        return self.hours * self.offer.most_hourly

    @property
    def limit(self) -> float:
        """Cost in $ at which the run is ended: ``max_cost``, or else 3 * ``most``."""
        return self.max_cost or MARGIN * self.most

    @property
    def reasoning(self) -> str:
        """Text that explains the estimated hours."""
        effort = self.effort
        is_limited = effort.limit_s < math.inf
        time = f", and at most {duration(effort.limit_s)}" if is_limited else ""
        return (
            f"{effort.setup_minutes:.0f} minutes of set-up, then "
            f"{'at most ' * is_limited}{effort.episodes:,} "
            f"training and {effort.measured:,} measured rollouts of "
            f"{effort.tokens:,.0f} sampled tokens, at {self.tokens_per_second:,.0f} "
            "tokens/s (assumed, not measured; a training rollout takes "
            f"{LEARNING:.0f} times as long as a measured one){time}"
        )

    def words(self) -> list[str]:
        """Return the terms that the user must agree to, as sentences."""
        offer = self.offer
        where = f" in {offer.region}" if offer.region else ""
        ends = (
            "unless --max-cost allows more" if self.max_cost is None else "--max-cost"
        )
        price = (
            f"{offer.provider}'s {offer.gpu} ({offer.gpu_memory_gb:.0f} GB){where} "
            f"costs {offer.price}. About {self.hours:.1f} hours, "
            f"${self.total:.2f}, if the whole budget is spent: {self.reasoning}."
        )
        limit = (
            f"The run is stopped at ${self.limit:.2f} ({ends}). The machine is ended "
            "when the run ends, however it does."
        )
        spot = [self._spot_terms()] if offer.is_spot else []
        engine = [self.engine] if self.engine else []
        return [price, *spot, f"The model needs {self.need.words}.", *engine, limit]

    def _spot_terms(self) -> str:
        terms = (
            "A spot machine may be taken away at any time. The run then goes on from "
            "its last saved step on another one, whose set-up is paid again"
        )
        if self.most > self.total:
            most = in_cents(self.offer.most_hourly)
            terms += (
                f". Its price may rise to that on demand, ${most} an hour, which would "
                f"be ${self.most:.2f}: the limit counts that price"
            )
        return f"{terms}. The limit is for all machines of the run."

    def record(self) -> dict[str, Any]:
        """Return the quote's figures as a JSON object."""
        return {
            "provider": self.offer.provider,
            "kind": self.offer.kind,
            "gpu": self.offer.gpu,
            "gpu_memory_gb": self.offer.gpu_memory_gb,
            "region": self.offer.region,
            "needed_gb": round(self.need.gb, 1),
            "need": self.need.words,
            "engine": self.need.engine,
            "hourly": round(self.offer.hourly, 4),
            "hours": round(self.hours, 2),
            "reasoning": self.reasoning,
            "total": round(self.total, 2),
            "spot": self.offer.is_spot,
            "most": round(self.most, 2),
            "limit": round(self.limit, 2),
        }


def quotes_of(
    offers: Sequence[Offer], config: TrainingConfig, done: int = 0
) -> list[Quote]:
    """Return quotes for a run, the cheapest first."""
    best, *others = needs_of(config)
    why = _VLLM if others else ""
    if others:
        without_limit = config.replaced(rent={"max_cost": None})
        try:  # without max_cost, since the slower engine would not cost less
            choose(offers, best, Effort.of(config), without_limit)
        except (ComputeError, UsageError) as error:
            best, why = others[0], _LOCAL.format(error)
    effort = Effort.of(config, done, best.engine)
    found = choose(offers, best, effort, config)
    return [replace(quote, engine=why) for quote in found]


def fits(offer: Offer, need: Need) -> bool:
    """Return whether a machine has a GPU with enough memory to train a model."""
    return offer.gpus > 0 and offer.gpu_memory_gb >= need.gb


def choose(
    offers: Sequence[Offer], need: Need, effort: Effort, config: TrainingConfig
) -> list[Quote]:
    """Return the quotes for a run on available machines, the cheapest first."""
    offers = [offer for offer in offers if offer.is_sound and not offer.is_arm]
    whose = " and ".join(dict.fromkeys(offer.provider for offer in offers)) or "nobody"
    rent = config.rent
    offers = [offer for offer in offers if offer.is_spot == rent.spot]
    if rent.spot and not offers:
        raise NoCapacityError(
            f"{whose} offers no spot machine at present. Leave --spot out "
            "(--no-spot with --resume), or try again later."
        )
    model = f"{config.model!r} needs {need.words}"
    fitting = [offer for offer in offers if fits(offer, need)]
    if not fitting:
        largest = max((offer.gpu_memory_gb for offer in offers), default=0.0)
        raise ComputeError(
            f"{model}, and no single GPU of {whose} has that much (the largest "
            f"{largest:.0f} GB). Take a smaller model"
            + (", or an adapter: lora_rank = 16." if not need.rank else ".")
        )
    quotes = _cheapest_first(fitting, need, effort, rent.max_cost)
    there = [quote for quote in quotes if quote.offer.is_available]
    if not there:
        named = ", ".join(dict.fromkeys(offer.gpu for offer in fitting))
        raise NoCapacityError(
            f"{model}. All GPUs of {whose} that have it are taken at present: {named}. "
            "Try again later, or another provider (`agentgym gpu list`)."
        )
    allowed = [quote for quote in there if _is_cheap(quote, rent.max_hourly)]
    if not allowed:
        least = min(there, key=lambda quote: quote.offer.hourly)
        raise UsageError(
            f"{model}. The least that this costs now is {least.offer.price} "
            f"({least.offer.provider}, {least.offer.gpu}), and --max-hourly is "
            f"${rent.max_hourly:.2f}. Raise it, or take a smaller model."
        )
    affordable = [q for q in allowed if q.max_cost is None or q.most <= q.max_cost]
    if not affordable:
        best = allowed[0]
        about = "up to" if best.most > best.total else "about"
        raise UsageError(
            f"The run would cost {about} ${best.most:.2f} on {best.offer.provider}'s "
            f"{best.offer.gpu}, more than --max-cost ${best.max_cost:.2f}: "
            f"{best.reasoning}. Raise it, or lower --episodes."
        )
    return affordable


def _cheapest_first(
    offers: Iterable[Offer], need: Need, effort: Effort, max_cost: float | None
) -> list[Quote]:
    quotes = [Quote(offer, need, effort, max_cost) for offer in offers]
    return sorted(quotes, key=lambda quote: (quote.total, quote.offer.hourly))


def _is_cheap(quote: Quote, max_hourly: float | None) -> bool:
    return max_hourly is None or quote.offer.hourly <= max_hourly
