"""A run's warm start: the known calls of training tasks are played and imitated."""
