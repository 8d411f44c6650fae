"""Benchmarks of writing code, as scenarios; ``README.md`` lists the files."""
