"""Training rollouts of one sampled call each, at states along the tasks' solutions."""
