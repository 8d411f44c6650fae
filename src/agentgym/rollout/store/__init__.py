"""The store of rollouts: one SQLite file, written by one thread."""
