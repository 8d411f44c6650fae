"""pydantic-ai: train agents, which pydantic-ai itself runs."""
