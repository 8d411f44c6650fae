"""Training: the loop, its run folder, and the agent that comes of it."""
