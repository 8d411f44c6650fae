"""Rollouts without training, with any model: batches, agents, tools, files."""
