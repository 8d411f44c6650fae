"""The families (kinds of task), level by level."""

from agentgym.plugins.packs.coding.families import level1, level2, level3
from agentgym.plugins.packs.coding.families.base import Draft, Family, Step

FAMILIES: tuple[Family, ...] = (
    *level1.FAMILIES,
    *level2.FAMILIES,
    *level3.FAMILIES,
)

__all__ = ["FAMILIES", "Draft", "Family", "Step"]
