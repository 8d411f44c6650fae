"""The command that climbs from an agent as it is to its goal."""
