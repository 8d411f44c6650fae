"""Train agents and workflows of Microsoft Agent Framework; the framework runs them."""
