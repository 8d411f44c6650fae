"""pydantic-ai: train its agents in their own loop."""
