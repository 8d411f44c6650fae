"""CrewAI: the adapter, its models, the export."""
