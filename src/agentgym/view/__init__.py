"""The viewer: a read-only server for the browser page of runs, its data and files."""
