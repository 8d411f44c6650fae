"""Training: the loop, its run folder, and the trained agent."""
