"""AutoGen: train agents and teams in their own loop, and export them."""
