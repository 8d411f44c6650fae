"""Rent machines from providers, estimate the cost, and end every rented machine."""
