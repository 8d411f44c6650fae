"""The parts that the scenarios of agentgym share."""
