"""Compose the texts of users' requests; each split has its own wording."""
