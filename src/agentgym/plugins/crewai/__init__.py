"""Train and export CrewAI's agents and crews; CrewAI itself runs them."""
