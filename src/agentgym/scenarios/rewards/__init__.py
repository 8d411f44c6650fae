"""Rewards for code, composed of weighted parts.

- ``parts``: the base class of a part, and the reward that combines parts.
- ``correctness``: a part for right results, by hidden tests in the sandbox.
- ``efficiency``: a part for CPU time and memory, relative to a reference solution.
- ``code_quality``: parts for style, security and complexity.
- ``static_checks``: the problems that ruff, bandit and radon find in code.
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
