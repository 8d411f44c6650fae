"""Measure the policy during a training run, and keep the run within its time limit."""
