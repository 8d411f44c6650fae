"""Find problems of this machine, and reasons why a run does not learn."""
