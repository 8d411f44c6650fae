"""Run episodes in worker processes."""
