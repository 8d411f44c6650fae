"""The coding team as a scenario: see ``README.md``."""
