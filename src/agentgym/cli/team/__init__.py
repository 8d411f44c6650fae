"""Define the commands that run a team of models, without training."""
