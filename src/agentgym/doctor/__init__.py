"""What is wrong with this machine, and why a run does not learn."""
