"""Measure agents: metrics with intervals, comparisons, agents without a model."""
