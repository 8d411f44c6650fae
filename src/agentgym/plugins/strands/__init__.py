"""Strands: train agents of the Strands Agents SDK, which runs them itself."""
