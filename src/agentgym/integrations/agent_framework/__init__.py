"""Microsoft Agent Framework: train its agents and workflows in their own loop."""
