"""Run rollouts without training: batches, agents, tools, files, with any model."""
