"""Languages of programs in a sandbox, in addition to Python."""
