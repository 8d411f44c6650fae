"""Commands that run a team of models, without training."""
