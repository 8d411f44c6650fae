"""Solve a problem with the coding team, without training."""
