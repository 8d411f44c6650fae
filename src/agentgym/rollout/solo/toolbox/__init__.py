"""Tools for agents: ready-made ones, a file each, and one's own functions."""
