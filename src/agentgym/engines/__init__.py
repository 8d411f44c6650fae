"""Engines: train a policy. Each engine has its own folder; see :mod:`.registry`."""
