"""Rewards of named, weighted parts, and the static checks that they share.

- ``parts``: :class:`ComposedReward` and its parts; :class:`SubmittedCode`.
- ``correctness``: hidden tests by values, in the sandbox.
- ``efficiency``: CPU time and memory relative to a reference solution.
- ``code_quality``: style, security and complexity.
- ``static_checks``: the findings of ruff, bandit and radon.
"""

from agentgym.scenarios.rewards.code_quality import Complexity, Security, Style
from agentgym.scenarios.rewards.correctness import Correctness
from agentgym.scenarios.rewards.efficiency import Efficiency
from agentgym.scenarios.rewards.parts import ComposedReward, RewardPart, SubmittedCode
from agentgym.scenarios.rewards.static_checks import (
    KINDS,
    CodeFinding,
    complexities,
    find_problems,
    is_test_file,
)

__all__ = [
    "KINDS",
    "CodeFinding",
    "Complexity",
    "ComposedReward",
    "Correctness",
    "Efficiency",
    "RewardPart",
    "Security",
    "Style",
    "SubmittedCode",
    "complexities",
    "find_problems",
    "is_test_file",
]
