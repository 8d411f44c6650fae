"""Engines: update a policy's weights, each in its own folder, found by name."""
