"""Providers of rented machines, one per file."""
