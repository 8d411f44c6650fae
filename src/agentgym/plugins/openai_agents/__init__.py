"""OpenAI Agents SDK: train agents, which the SDK itself runs."""
