"""Choose random phrases of customers other than requests, e.g. for an answer."""

from random import Random
from typing import Any

from agentgym.core.task import Split
from agentgym.plugins.packs.customer_support.wording import FORMS
from agentgym.plugins.packs.wording.grammar import draw


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
