"""AutoGen: train agents and teams, which AutoGen itself runs, and export them."""
