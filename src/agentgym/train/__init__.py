"""The training loop, the folder of a run, and the trained agent."""
