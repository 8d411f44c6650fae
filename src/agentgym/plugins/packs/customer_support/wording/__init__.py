"""The phrases of the customers, in one or more text files per split."""

from pathlib import Path

from agentgym.plugins.packs.wording.grammar import Phrases
from agentgym.plugins.packs.wording.pools import Forms, read_pools

_FORMS = (
    *("order", "vague", "vague_item", "identity"),
    *("tell", "tell_kind", "correct", "change", "more"),
)

_POOLS = read_pools(Path(__file__).parent)
FORMS: dict[str, Forms] = {name: _POOLS[name] for name in _FORMS}
"""Phrases of customers other than requests, by kind, e.g. for an answer."""
INTENTS = {name: Phrases(p) for name, p in _POOLS.items() if name not in _FORMS}
"""Requests of customers, by kind, e.g. to cancel an order."""
