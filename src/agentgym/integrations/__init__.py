"""Adapters of agent frameworks: the contract, and a folder for each framework."""
