"""The wording of requests: text files per split, and the ways to refer to files."""

from pathlib import Path

from agentgym.scenarios.wording.grammar import Phrases
from agentgym.scenarios.wording.pools import Forms, read_pools

FORMS = ("module", "tests", "tests_of", "script", "folder", "root")
"""The sections that refer to files and folders; the others ask for something."""

_POOLS = read_pools(Path(__file__).parent)
REFERENCES: dict[str, Forms] = {name: _POOLS[name] for name in FORMS}
PHRASES = {name: Phrases(p) for name, p in _POOLS.items() if name not in FORMS}
"""How each family is asked for."""
