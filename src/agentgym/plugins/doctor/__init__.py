"""Find problems of this machine, and the reasons why a run does not learn."""
