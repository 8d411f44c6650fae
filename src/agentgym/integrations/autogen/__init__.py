"""AutoGen: agents and teams, trained in their own loop and given back."""
