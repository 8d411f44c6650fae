"""Engines: what updates a policy, each in its own folder, found by name."""
