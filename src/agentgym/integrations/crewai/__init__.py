"""CrewAI: its adapter, its models, and the export of trained agents."""
