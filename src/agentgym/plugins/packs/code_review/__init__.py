"""The code review scenario: find planted defects and report them by file and line.

- ``scenario``: :class:`CodeReviewScenario`, its system prompt, and how tasks are made.
- ``environment``: the project of one episode, and the agent's five tools.
- ``plants``: the defects to plant: bugs, vulnerabilities and style problems.
- ``families``: the kinds of task, level by level.
- ``rewards``: the reward, from precision and recall of the agent's reports.
- ``wording``: the phrases of the requests.
"""
