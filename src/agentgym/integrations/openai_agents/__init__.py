"""OpenAI Agents SDK: its agents, trained in their own loop."""
