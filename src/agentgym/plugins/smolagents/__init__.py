"""smolagents: train its ToolCallingAgent, which smolagents itself runs."""
