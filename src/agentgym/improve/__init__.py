"""Improve an agent step by step ("rungs") until it meets a goal, and record the cost.

All rungs together are the ladder: measure the agent as it is, better prompts, a warm
start, training, a quote for a bigger model. The same held-out tasks are measured after
each rung. The ladder ends at the first rung that meets the goal, and never spends more
than the user allowed.
"""

from agentgym.improve.bill import Bill, RungResult
from agentgym.improve.climb import improve
from agentgym.improve.terms import Terms, read_goal

__all__ = ["Bill", "RungResult", "Terms", "improve", "read_goal"]
