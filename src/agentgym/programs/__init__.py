"""Run users' programs: parse the command, start it, limit it, end its children too."""
