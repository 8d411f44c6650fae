"""Resolve ``gpu = "auto"``: choose this machine or a rented one for a model.

A model trains on this machine if the GPU has enough memory for it. Without a GPU, it
trains on the CPU if that is expected to take hours, not days.
"""

from dataclasses import replace
from pathlib import Path

from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.engines.memory import EPISODES, fitting_settings
from agentgym.errors import ComputeError, NoCapacityError, UsageError
from agentgym.models.reference import is_remote
from agentgym.plugins.cloud.base import Provider
from agentgym.plugins.cloud.providers.local import LocalMachine
from agentgym.plugins.cloud.quote import Effort, Quote, fits, quotes_of
from agentgym.plugins.cloud.registry import asked_unnamed, rented, require_spot
from agentgym.plugins.cloud.sizes import Need, need_of, needs_of

CPU_PARAMETERS = 1e9
"""A model with more parameters than this is not trained on the CPU."""
_USUAL = (
    ("an L4", 24, 0.45),
    ("an L40S", 48, 0.90),
    ("an A100", 80, 1.70),
    ("an H200", 141, 4.00),
)
"""GPUs that can be rented: name, memory in GB, typical price in $ per hour.

One is suggested in an error message if no provider is set up."""


def settle(config: TrainingConfig) -> str:
    """Return the setting ``gpu`` to train with, for a run with ``gpu = "auto"``.

    The result is ``auto`` to train on this machine, otherwise a provider's name.
    """
    if is_remote(config.model) or config.engine not in (AUTO_ENGINE, "local"):
        return config.gpu  # other code refuses or resolves these
    try:
        need = need_of(config)
    except UsageError:
        return config.gpu
    why = _why_not_here(need, config)
    if not why:
        return config.gpu
    why += _with_less(need, config)
    providers = asked_unnamed()
    if not providers:
        raise ComputeError(
            f"{config.model!r} needs {need.words}, and {why}. {_would_rent(need)} To "
            f"train here all the same: --gpu {'local' if _has_gpu() else 'none'}."
        )
    if config.rent.spot:
        providers = require_spot(providers)
    return _cheapest(providers, config).offer.provider


def expected_time(config: TrainingConfig) -> str:
    """Describe the hours that a run is expected to take on this machine's GPU."""
    if config.gpu not in ("auto", "local") or config.deterministic:
        return ""
    found = [offer for offer in LocalMachine().offers() if offer.gpus]
    if not found:
        return ""
    try:
        need, *_ = needs_of(config)
    except UsageError:
        return ""
    quote = Quote(found[0], need, replace(Effort.of(config), setup_minutes=0.0))
    return (
        f"about {quote.hours:.1f} hours if the whole budget is spent, at a speed of "
        f"{found[0].gpu} that was assumed, not measured"
    )


def _why_not_here(need: Need, config: TrainingConfig) -> str:
    """Return why this machine cannot train the model; empty if it can."""
    offers = LocalMachine().offers()
    if any(offer.gpus for offer in offers):
        needs = [need]
        if config.max_episode_tokens is None:
            shorter = config.replaced(max_episode_tokens=EPISODES[-1])
            needs.append(need_of(shorter))
        if any(fits(offer, each) for offer in offers for each in needs):
            return ""
        most = max(offer.gpu_memory_gb for offer in offers)
        return f"the GPU of this machine has {most:.0f} GB"
    if _has_gpu():  # its driver does not report the size
        return ""
    here = offers[0].memory_gb
    if need.gb > here and fitting_settings(config, int(here * 1e9)) != []:
        return f"this machine has no GPU, and {here:.0f} GB of memory"
    if need.parameters > CPU_PARAMETERS:
        return "this machine has no GPU: its CPU would take days"
    return ""


def _with_less(need: Need, config: TrainingConfig) -> str:
    """Return a sentence with settings for which this machine's memory is enough."""
    if _has_gpu() or need.parameters > CPU_PARAMETERS:
        return ""
    memory = LocalMachine().offers()[0].memory_gb
    settings = fitting_settings(config, int(memory * 1e9))
    if not settings:
        return ""
    return f". It fits here with {' and '.join(settings)} (a --config file sets them)"


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def _would_rent(need: Need) -> str:
    for gpu, memory, hourly in _USUAL:
        if memory >= need.gb:
            price = f"{gpu} for about ${hourly:.2f} an hour"
            keys = " or ".join(
                f"{each.key} ({each.name})" for each in rented() if each.key
            )
            return (
                f"It would be trained on a rented GPU, {price}. To do so, give a key: "
                f"{keys}."
            )
    return (
        "No single GPU that can be rented is large enough, either: take a smaller "
        "model" + ("." if need.rank else ", or an adapter: --set lora_rank=16.")
    )


def _cheapest(providers: list[Provider], config: TrainingConfig) -> Quote:
    """Return the cheapest quote that uses vLLM; if none does, the cheapest quote.

    A provider that raises an error is skipped. If all do, the errors are raised.
    """
    quotes, errors = [], list[ComputeError | UsageError]()
    for provider in providers:
        try:
            quotes += quotes_of(provider.offers(), config)
        except (ComputeError, UsageError) as error:
            errors.append(error)
    if not quotes:
        if len(errors) == 1:
            raise errors[0]
        raise NoCapacityError(" ".join(str(error) for error in errors))
    return min(quotes, key=lambda quote: (quote.need.engine == "local", quote.total))
