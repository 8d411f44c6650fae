"""The phrases of the requests, in one or more text files per split."""

from pathlib import Path

from agentgym.plugins.packs.wording.grammar import Phrases
from agentgym.plugins.packs.wording.pools import read_pools

PHRASES = {name: Phrases(p) for name, p in read_pools(Path(__file__).parent).items()}
"""Phrases of the requests for one function, and for several."""
