"""The families (kinds of task), level by level."""

from agentgym.plugins.packs.customer_support.families import level1, level2, level3
from agentgym.plugins.packs.customer_support.families.base import (
    SupportDraft,
    SupportFamily,
    SupportScene,
    SupportStep,
)

FAMILIES = (*level1.FAMILIES, *level2.FAMILIES, *level3.FAMILIES)

__all__ = ["FAMILIES", "SupportDraft", "SupportFamily", "SupportScene", "SupportStep"]
