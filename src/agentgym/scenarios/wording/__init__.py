"""The wording of requests: lists of texts per split, patterns, polite forms."""
