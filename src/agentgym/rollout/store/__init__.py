"""Store rollouts in one SQLite file, written by one thread."""
