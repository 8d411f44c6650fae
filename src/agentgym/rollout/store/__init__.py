"""What rollouts recorded: one SQLite file, written by one thread."""
