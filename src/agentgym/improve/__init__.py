"""Improve an agent step by step until it meets a goal, and record the cost.

Each step is called a rung, and all of them together the ladder. The rungs are: measure
the unchanged agent, search for better prompts, a warm start (imitation of known calls),
training, and a price quote for a bigger model. The same held-out tasks are measured
after each rung. The ladder ends at the first rung that meets the goal, and never spends
more than the user allowed.
"""

from agentgym.improve.bill import Bill, RungResult
from agentgym.improve.climb import improve
from agentgym.improve.terms import Terms, read_goal

__all__ = ["Bill", "RungResult", "Terms", "improve", "read_goal"]
