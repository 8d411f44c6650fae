"""The kinds of task. A family creates a draft, and makes a task from it."""

from agentgym.scenarios.coding.families import level1, level2, level3
from agentgym.scenarios.coding.families.base import Draft, Family, Step

FAMILIES: tuple[Family, ...] = (
    *level1.FAMILIES,
    *level2.FAMILIES,
    *level3.FAMILIES,
)

__all__ = ["FAMILIES", "Draft", "Family", "Step"]
