"""Microsoft Agent Framework: train agents and workflows, which it runs itself."""
