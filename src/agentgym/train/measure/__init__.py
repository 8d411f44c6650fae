"""Measure a run's policy while it trains, and keep the run within its time."""
