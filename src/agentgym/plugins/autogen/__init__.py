"""Train and export AutoGen's agents and teams; AutoGen itself runs them."""
