"""The shared types and helpers that every other folder imports."""
