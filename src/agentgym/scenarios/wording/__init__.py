"""The wording of requests: text pools by split, patterns, polite forms."""
