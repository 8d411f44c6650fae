"""The models that agents ask: an endpoint, and finding one from what users give."""
