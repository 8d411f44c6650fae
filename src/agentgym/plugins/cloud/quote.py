"""Quote: estimate the GPU memory and the cost of a run, before a machine is rented.

Memory goes by the model's number of parameters, before the model is downloaded:
weights, gradients, AdamW's two moments, activations of a backward pass, and the KV
cache. It is only exact enough to choose a GPU.
"""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.engines.memory import MemoryEstimate, shape_of, told_use
from agentgym.engines.registry import remote_engine
from agentgym.errors import ComputeError, ModelError, NoCapacityError, UsageError
from agentgym.evaluate.numbers import duration
from agentgym.models.folder import (
    ADAPTER_FILE,
    held_rank,
    model_source,
    new_rank,
    read_json,
)
from agentgym.plugins.cloud.base import Offer, in_cents
from agentgym.plugins.cloud.group import RentSettings
from agentgym.plugins.vllm.support import ASLEEP_BYTES, SERVER_BYTES
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_count

if TYPE_CHECKING:
    from rich.console import RenderableType

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
"""Assumed tokens per second of a model with a billion parameters, by part of the GPU's
name. The time per token is assumed to be proportional to the number of parameters."""
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
_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([BbMm])(?![A-Za-z0-9])"
)
_UNITS = {"b": 1e9, "m": 1e6}
_HALF, _FULL = 2, 4
_ADAPTER = 0.01
"""An adapter's parameters at rank 16, as a share of the model's parameters."""
_LEARNED = 4 * _FULL
"""Bytes per trained parameter: the parameter, its gradient and two moments."""
_KEPT_GB, _KEPT_EACH_B = 3.0, 0.6
_CACHE_GB, _CACHE_EACH_B = 2.0, 0.4
_CUDA_GB = 1.0


@dataclass(frozen=True)
class Need:
    """The GPU memory that training a model needs with an engine."""

    parameters: float
    source: str
    rank: int
    gb: float
    engine: str = "local"

    @property
    def words(self) -> str:
        """Text with the peak memory, and the source of the estimate."""
        learned = f"LoRA rank {self.rank}" if self.rank else "full weights"
        engine = ", vLLM included" * (self.engine == "vllm")
        return (
            f"{self.gb:.0f} GB: {learned} of {self.parameters / 1e9:.1f} billion "
            f"parameters{engine} ({self.source})"
        )


def needs_of(config: TrainingConfig) -> list[Need]:
    """Return the GPU memory that a run needs with each engine that it may use."""
    local, with_vllm = _needs(config)
    engine = remote_engine(config)
    if engine == "local":
        return [local]
    return [with_vllm] if engine != AUTO_ENGINE else [with_vllm, local]


def need_of(config: TrainingConfig) -> Need:
    """Return the GPU memory that a run needs with the local engine, without vLLM."""
    return _needs(config)[0]


def _needs(config: TrainingConfig) -> tuple[Need, Need]:
    """Return the GPU memory that a run needs with the local engine, and with vLLM."""
    known = None
    with suppress(ModelError):  # another engine may train this architecture
        known = shape_of(config.model)
    if known is not None:
        shape, held = known
        use = told_use(config, on_gpu=True, has_half=True)
        found, rank = MemoryEstimate.of(shape, use, held), use.rank
        parameters: float = held or shape.parameters
        source = "by its config.json"
        learned = found.adapter + found.gradients + found.optimizer
        kept = float(found.weights + learned)
        activations = float(found.activations)
        cache = float(found.least_cache + found.overhead)
    else:
        parameters, source = _parameters(config.model)
        rank = held_rank(Path(model_source(config.model))) or new_rank(
            config.model, config.lora_rank
        )
        kept = parameters * _HALF if rank else 0.0
        kept += parameters * (_ADAPTER * rank / 16 if rank else 1) * _LEARNED
        activations = _KEPT_GB * 1e9 + _KEPT_EACH_B * parameters
        cache = (_CACHE_GB + _CUDA_GB) * 1e9 + _CACHE_EACH_B * parameters
    local = Need(parameters, source, rank, (kept + activations + cache) / 1e9)
    # vLLM and the backward pass take turns, so only the larger of them counts.
    served = parameters * _HALF + SERVER_BYTES + max(0.0, cache - _CUDA_GB * 1e9)
    by_turns = kept + max(served, activations + ASLEEP_BYTES)
    return local, replace(local, gb=by_turns / 1e9, engine="vllm")


def _parameters(model: str) -> tuple[float, str]:
    """Return a model's number of parameters, and how this number is known."""
    folder = Path(model_source(model))
    if folder.is_dir():
        if (folder / ADAPTER_FILE).is_file():
            base = read_json(folder / ADAPTER_FILE).get("base_model_name_or_path")
            return _parameters(str(base))
        kind = read_json(folder / "config.json")
        dtype = kind.get("dtype") or kind.get("torch_dtype")
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        if size:
            each = _FULL if dtype in (None, "float32") else _HALF
            return size / each, "counted in its folder"
    found = _SIZE.search(folder.name)
    if found is None:
        raise UsageError(
            f"How large is {model!r}? Its name does not say, as '4B' or '0.5B' would, "
            "and it is not on this machine, so no GPU can be chosen for it. Download "
            "it, and give --model its folder."
        )
    experts, number, unit = found.groups()
    count = float(number) * int(experts or 1) * _UNITS[unit.lower()]
    return count, f"{found[0]} parameters, by its name"


@dataclass(frozen=True)
class Effort:
    """The rollouts and tokens of a run, from which its cost is estimated.

    Attributes:
        measured: Rollouts that only evaluate the policy, besides those to train on.
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
        """Estimate the rollouts and tokens of a run, of which ``done`` are done."""
        scenario = get_scenario(config.scenario)
        held_out = held_out_count(scenario, config.seed, config.test_tasks)
        times = 2 + config.warm_start  # before, after the warm start, after training
        measured = times * config.eval_samples * held_out
        left = max(0, config.episodes - done)
        steps = math.ceil(left / config.group_size / config.tasks_per_step)
        measured += config.validations(steps) * config.eval_tasks
        setup = SETUP_MINUTES + ENGINE_MINUTES * (engine != "local")
        tokens = CALLS * FILLED * config.answer_tokens
        return cls(left, measured, tokens, setup, config.time or math.inf)


@dataclass(frozen=True)
class Quote:
    """The estimated time and cost of a run on an offered machine."""

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
        ends = "--max-cost" if self.max_cost else "unless --max-cost allows more"
        price = (
            f"{offer.provider}'s {offer.gpu} ({offer.gpu_memory_gb:.0f} GB)"
            f"{offer.where} costs {offer.price}. About {self.hours:.1f} hours, "
            f"${self.total:.2f}, if the whole budget is spent: {self.reasoning}."
        )
        limit = (
            f"The run is stopped at ${self.limit:.2f} ({ends}). The machine is ended "
            "when the run ends, however it does."
        )
        spot = (
            "A spot machine may be taken away at any time. The run then goes on from "
            "its last saved step on another one, whose set-up is paid again"
        )
        if self.most > self.total:
            most = in_cents(offer.most_hourly)
            spot += (
                f". Its price may rise to that on demand, ${most} an hour, which would "
                f"be ${self.most:.2f}: the limit counts that price"
            )
        spot += ". The limit is for all machines of the run."
        needs = f"The model needs {self.need.words}."
        words = [price, spot if offer.is_spot else "", needs, self.engine, limit]
        return [each for each in words if each]

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
    rent, usable = RentSettings.of(config), [each for each in offers if each.is_usable]
    whose = " and ".join(dict.fromkeys(each.provider for each in usable)) or "nobody"
    wanted = [offer for offer in usable if offer.is_spot == rent.spot]
    if rent.spot and not wanted:
        raise NoCapacityError(
            f"{whose} offers no spot machine at present. Leave --spot out "
            "(--no-spot with --resume), or try again later."
        )
    model = f"{config.model!r} needs {need.words}"
    fitting = [offer for offer in wanted if fits(offer, need)]
    if not fitting:
        largest = max((offer.gpu_memory_gb for offer in wanted), default=0.0)
        raise ComputeError(
            f"{model}, and no single GPU of {whose} has that much (the largest "
            f"{largest:.0f} GB). Take a smaller model"
            + (", or an adapter: lora_rank = 16." if not need.rank else ".")
        )
    quotes = [
        Quote(offer, need, effort, rent.max_cost)
        for offer in fitting
        if offer.is_available
    ]
    quotes.sort(key=lambda quote: (quote.total, quote.offer.hourly))
    if not quotes:
        named = ", ".join(dict.fromkeys(offer.gpu for offer in fitting))
        raise NoCapacityError(
            f"{model}. All GPUs of {whose} that have it are taken at present: {named}. "
            "Try again later, or another provider (`agentgym gpu list`)."
        )
    most = math.inf if rent.max_hourly is None else rent.max_hourly
    allowed = [quote for quote in quotes if quote.offer.hourly <= most]
    if not allowed:
        least = min(quotes, key=lambda quote: quote.offer.hourly).offer
        raise UsageError(
            f"{model}. The least that this costs now is {least.price} "
            f"({least.provider}, {least.gpu}), and --max-hourly is "
            f"${most:.2f}. Raise it, or take a smaller model."
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


def quote_view(quotes: Sequence[Quote]) -> "RenderableType":
    """Return a view of a run's expected cost on the first machine of ``quotes``."""
    from rich.console import Group
    from rich.text import Text

    from agentgym.ui.layout import grid, indent

    first, others = quotes[0], quotes[1:4]
    parts: list[RenderableType] = [Text("Expected cost", "bold")]
    parts += [indent(Text(words)) for words in first.words()]
    lines = [
        (
            f"{quote.offer.gpu}{quote.offer.where}",
            f"{quote.offer.price}, about {quote.hours:.1f} hours, ${quote.total:.2f}",
        )
        for quote in others
    ]
    if lines:
        parts += [indent(Text("If that is taken:")), indent(indent(grid(*lines)))]
    return Group(*parts)
