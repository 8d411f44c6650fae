"""Machine providers, one per file; ``api`` and ``sky_command`` send their requests."""
