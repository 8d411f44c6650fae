"""Publish trained agents: an OpenAI-compatible server, and folders of weights."""
