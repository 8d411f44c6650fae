"""Run users' programs: parse the command, start it with limits, end its processes."""
