"""Improve an agent step by step until it meets a goal, and record the cost.

Each step is called a rung, and all of them together the ladder. The rungs are: measure
the unchanged agent, search for better prompts, a warm start (imitation of known calls),
training, and a price quote for a bigger model. The same held-out tasks are measured
after each rung. The ladder ends at the first rung that meets the goal, and never spends
more than the user allowed.
"""

from typing import TYPE_CHECKING

from agentgym.lazy import lazily

if TYPE_CHECKING:
    from agentgym.plugins.improve.bill import Bill as Bill
    from agentgym.plugins.improve.bill import RungResult as RungResult
    from agentgym.plugins.improve.ladder import improve as improve
    from agentgym.plugins.improve.terms import Terms as Terms
    from agentgym.plugins.improve.terms import read_goal as read_goal
else:
    __getattr__, __dir__, __all__ = lazily(__spec__)
