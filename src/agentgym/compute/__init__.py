"""Machines to run on: this one, one over SSH, and rented ones."""
