"""What the scenarios that agentgym ships share."""
