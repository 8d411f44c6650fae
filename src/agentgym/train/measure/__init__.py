"""Measure a run's policy during training, and keep the run within its time limit."""
