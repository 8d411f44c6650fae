"""Microsoft Agent Framework: its agents and workflows, trained in their own loop."""
