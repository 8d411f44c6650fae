"""Machine providers, one per file; ``api`` sends requests to their HTTP APIs."""
