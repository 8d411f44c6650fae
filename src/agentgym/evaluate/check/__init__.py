"""Tripwires: tests that find faults of a scenario before you train on it.

A tripwire is a function that gets an :class:`Examination` and yields the problems that
it finds, as texts, and a ``Note`` for a remark that is not a problem.
``check_scenario`` runs all of them.
"""

from agentgym.evaluate.check.examination import Examination, Finding
from agentgym.evaluate.check.run import check_scenario

__all__ = ["Examination", "Finding", "check_scenario"]
