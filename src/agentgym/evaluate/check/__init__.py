"""Tripwires: check a scenario for faults before anything is trained on it.

``check_scenario`` runs them all; each is a function of an :class:`Examination` in
``tripwires.py`` or ``repeats.py`` and yields the problems that it finds.
"""

from agentgym.evaluate.check.examination import Examination, Finding
from agentgym.evaluate.check.run import check_scenario

__all__ = ["Examination", "Finding", "check_scenario"]
