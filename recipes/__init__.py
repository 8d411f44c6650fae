"""Recipes: how the things that ship with the package were made."""
