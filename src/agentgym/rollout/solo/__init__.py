"""Rollouts without training, with any model."""
