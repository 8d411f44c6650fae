"""The wording of requests: text files per split, and references to files."""

from pathlib import Path

from agentgym.scenarios.wording.grammar import Phrases
from agentgym.scenarios.wording.pools import Forms, read_pools

FORMS = ("module", "tests", "tests_of", "script", "folder", "root")
"""Sections with phrases for files and folders; other sections have requests."""

_POOLS = read_pools(Path(__file__).parent)
REFERENCES: dict[str, Forms] = {name: _POOLS[name] for name in FORMS}
PHRASES = {name: Phrases(p) for name, p in _POOLS.items() if name not in FORMS}
"""Requests for each family."""
