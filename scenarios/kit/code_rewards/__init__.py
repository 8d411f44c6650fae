"""Rewards for code, composed of weighted parts.

- ``parts``: the base class of a part, a part for right results by hidden tests in the
  sandbox, and the reward that combines parts.
- ``efficiency``: a part for CPU time and memory, relative to a reference solution.
- ``static_checks``: the problems that ruff, bandit and radon find in code, and parts
  for style, security and complexity.
"""

from agentgym.packs.kit.code_rewards.efficiency import Efficiency
from agentgym.packs.kit.code_rewards.parts import (
    ComposedReward,
    Correctness,
    RewardPart,
    SubmittedCode,
    is_test_file,
)
from agentgym.packs.kit.code_rewards.static_checks import (
    KINDS,
    CodeFinding,
    Complexity,
    Security,
    Style,
    complexities,
    find_problems,
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
