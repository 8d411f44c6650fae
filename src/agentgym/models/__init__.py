"""Policies that ship with the package."""
