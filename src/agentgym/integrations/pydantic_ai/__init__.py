"""pydantic-ai: its agents, trained in their own loop."""
