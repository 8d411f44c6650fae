"""OpenAI Agents SDK: train its agents in their own loop."""
