"""Tripwires: tests that find faults of a scenario before you train on it.

``check_scenario`` runs all tripwires. A tripwire is a function that gets an
:class:`Examination` and yields the problems that it finds. The tripwires are in
``tripwires.py``, ``hacks.py`` and ``repeats.py``.
"""

from agentgym.evaluate.check.examination import Examination, Finding
from agentgym.evaluate.check.run import check_scenario

__all__ = ["Examination", "Finding", "check_scenario"]
