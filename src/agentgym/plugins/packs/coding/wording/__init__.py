"""The phrases of the requests, and phrases for files; text files for each split."""

from pathlib import Path

from agentgym.plugins.packs.wording.grammar import Phrases
from agentgym.plugins.packs.wording.pools import Forms, read_pools

FORMS = ("module", "tests", "tests_of", "script", "folder", "root")
"""Sections of the text files with phrases for files; the others have requests."""

_POOLS = read_pools(Path(__file__).parent)
REFERENCES: dict[str, Forms] = {name: _POOLS[name] for name in FORMS}
PHRASES = {name: Phrases(p) for name, p in _POOLS.items() if name not in FORMS}
"""Phrases of the requests, by family (kind of task)."""
