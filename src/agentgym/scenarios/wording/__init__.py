"""How requests are worded: pools by split, patterns, polite forms."""
