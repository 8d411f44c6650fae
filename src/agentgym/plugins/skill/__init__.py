"""A skill for coding agents: the way from an app to a trained agent, as a folder."""
