"""Decode responses, with continuous batching if the model supports packed tokens."""
