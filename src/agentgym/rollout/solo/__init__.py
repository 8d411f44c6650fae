"""Rollouts without training: batches, agents, tools and files, with any model."""
