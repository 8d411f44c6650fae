"""Tripwires: check a scenario for faults before training on it.

``check_scenario`` runs all of them. Each is a function of an :class:`Examination` in
``tripwires.py`` or ``repeats.py`` that yields the problems it finds.
"""

from agentgym.evaluate.check.examination import Examination, Finding
from agentgym.evaluate.check.run import check_scenario

__all__ = ["Examination", "Finding", "check_scenario"]
