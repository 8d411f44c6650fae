"""Convert chat messages to token ids, and token ids to answers; restrict answers."""
