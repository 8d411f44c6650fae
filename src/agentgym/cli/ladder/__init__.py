"""The command ``agentgym improve``: better prompts, then training, until a goal."""
