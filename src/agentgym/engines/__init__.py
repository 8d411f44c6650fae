"""Engines: update a policy's weights. Each is in a folder of its own, found by name."""
