"""Resolve ``gpu = "auto"``: choose this machine or a rented one for a model.

A model trains on this machine if the GPU has enough memory for it. Without a GPU, it
trains on the CPU if that is expected to take hours, not days.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.machines import SSH
from agentgym.engines.memory import EPISODES, check_memory
from agentgym.errors import (
    ComputeError,
    NoCapacityError,
    UnsupportedError,
    UsageError,
)
from agentgym.models.reference import is_remote
from agentgym.plugins.cloud.base import (
    asked_unnamed,
    local_offers,
    providers,
    require_spot,
)
from agentgym.plugins.cloud.group import RentSettings
from agentgym.plugins.cloud.quote import (
    Effort,
    Need,
    Quote,
    fits,
    need_of,
    needs_of,
    quotes_of,
)

CPU_PARAMETERS = 1e9
"""A model with more parameters than this is not trained on the CPU."""


def check(config: TrainingConfig) -> None:
    """Raise UnsupportedError if ``rent.spot`` is set, and no machine is rented."""
    place = config.gpu.partition(":")[0]
    if RentSettings.of(config).spot and place in ("local", "none", SSH):
        raise UnsupportedError(
            f"--spot rents machines, and --gpu {config.gpu} rents none: leave --spot "
            "out, or take --gpu sky."
        )


def settle(config: TrainingConfig) -> str:
    """Return the setting ``gpu`` to train with, for a run with ``gpu = "auto"``."""
    if is_remote(config.model) or config.engine not in (AUTO_ENGINE, "local"):
        return config.gpu  # other code refuses or resolves these
    try:
        need = need_of(config)
    except UsageError:
        return config.gpu
    why = _why_not_here(need, config)
    if not why:
        return config.gpu
    asked = asked_unnamed()
    if not asked:
        named = [f"{each.key} ({each.name})" for each in providers() if each.key]
        keys = " or ".join(named)
        raise ComputeError(
            f"{config.model!r} needs {need.words}, and {why}. To train it on a rented "
            f"GPU, if one is large enough, give a key: {keys}. To train here all the "
            f"same: --gpu {'local' if _has_gpu() else 'none'}."
        )
    if RentSettings.of(config).spot:
        asked = require_spot(asked)
    quotes, errors = list[Quote](), list[ComputeError | UsageError]()
    for provider in asked:
        try:
            quotes += quotes_of(provider.offers(), config)
        except (ComputeError, UsageError) as error:
            errors.append(error)
    if not quotes:
        if len(errors) == 1:
            raise errors[0]
        raise NoCapacityError(" ".join(str(error) for error in errors))
    best = min(quotes, key=lambda quote: (quote.need.engine == "local", quote.total))
    return best.offer.provider


def expected_time(config: TrainingConfig) -> str:
    """Describe the hours that a run is expected to take on this machine's GPU."""
    if config.gpu not in ("auto", "local") or config.deterministic:
        return ""
    found = [offer for offer in local_offers() if offer.gpus]
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
    offers = local_offers()
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
    if need.parameters > CPU_PARAMETERS:
        return "this machine has no GPU: its CPU would take days"
    if need.gb > here:
        with suppress(UsageError):
            if check_memory(config, "cpu"):
                return ""
        return f"this machine has no GPU, and {here:.0f} GB of memory"
    return ""


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))
