"""Inject faults into tool calls, in training, in evaluations and in contracts."""
