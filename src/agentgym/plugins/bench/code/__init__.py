"""Benchmarks of writing code, as scenarios: see ``README.md``."""
