"""Between chat messages and token ids: rendering, turns continued, answers read."""
