"""Adapters of agent frameworks: the interface, and a folder for each framework."""
