"""The wording of requests: text files per split."""

from pathlib import Path

from agentgym.scenarios.wording.grammar import Phrases
from agentgym.scenarios.wording.pools import read_pools

PHRASES = {name: Phrases(p) for name, p in read_pools(Path(__file__).parent).items()}
"""Requests for each kind of review."""
