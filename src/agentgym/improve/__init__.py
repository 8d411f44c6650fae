"""From an agent as it is to its goal, rung by rung, with a bill.

The same held-out tasks are measured after each rung: better prompts, a warm start,
training. It stops at the first rung that meets the goal, and spends no dollar that the
user did not allow.
"""

from agentgym.improve.bill import Bill, RungResult
from agentgym.improve.climb import improve
from agentgym.improve.terms import Terms, read_goal

__all__ = ["Bill", "RungResult", "Terms", "improve", "read_goal"]
