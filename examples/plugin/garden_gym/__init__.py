"""A plug-in of AgentGym: a scenario, a framework and a command."""
