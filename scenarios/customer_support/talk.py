"""The phrases of customers: requests, answers, corrections."""

from pathlib import Path
from random import Random
from typing import Any

from agentgym.core.task import Split
from agentgym.packs.kit.phrases import Forms, Phrases, draw, read_pools

_FORMS = (
    *("order", "vague", "vague_item", "identity"),
    *("tell", "tell_kind", "correct", "change", "more"),
)

_POOLS = read_pools(Path(__file__).parent / "wording")
FORMS: dict[str, Forms] = {name: _POOLS[name] for name in _FORMS}
"""Phrases of customers other than requests, by kind, e.g. for an answer."""
INTENTS = {name: Phrases(p) for name, p in _POOLS.items() if name not in _FORMS}
"""Requests of customers, by kind, e.g. to cancel an order."""


def say(rng: Random, split: Split, form: str, **slots: Any) -> str:
    """Return a random phrase of the kind ``form``, with ``slots`` filled in."""
    return draw(rng, split, FORMS[form]).format(**slots)


def order(rng: Random, split: Split, number: str) -> str:
    """Return a random phrase that refers to an order by its number."""
    return say(rng, split, "order", n=number)


def fact(rng: Random, split: Split, kind: str, value: str) -> str:
    """Return a random answer that gives a fact, e.g. ``value`` as the ``email``."""
    if rng.random() < 0.3:
        name = {"order": "order number"}.get(kind, kind)
        return say(rng, split, "tell_kind", k=name, x=value)
    return say(rng, split, "tell", x=value)
