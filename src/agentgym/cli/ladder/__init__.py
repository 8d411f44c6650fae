"""Define the command ``agentgym improve``: better prompts, then training."""
