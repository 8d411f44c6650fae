"""Define the commands of ``agentgym``, which call the library."""
