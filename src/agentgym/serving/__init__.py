"""Trained agents for others: an OpenAI-compatible server, folders of weights."""
