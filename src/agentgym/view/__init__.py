"""The browser page of runs: a read-only server, its data, and its static files."""
