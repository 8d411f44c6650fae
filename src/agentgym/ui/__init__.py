"""Show runs to people: a live view and tables in the terminal, and report files."""
