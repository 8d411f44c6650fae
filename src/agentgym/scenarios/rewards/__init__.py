"""Rewards for code as named parts, and the static checks that they share."""

from agentgym.scenarios.rewards.static_checks import (
    KINDS,
    CodeFinding,
    complexities,
    find_problems,
    is_test_file,
)

__all__ = ["KINDS", "CodeFinding", "complexities", "find_problems", "is_test_file"]
