"""Scenarios that come along, and the parts that those with generated tasks share."""
