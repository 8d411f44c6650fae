"""Measure and compare agents, with confidence intervals.

Baselines are trivial agents that call no model.
"""
