"""Show runs to people: the live terminal view, tables, and reports."""
