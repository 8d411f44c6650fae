"""Convert between chat messages and token ids: render prompts, parse answers."""
