"""Continuous batching: the requests in the running batch, and its decoding steps."""
