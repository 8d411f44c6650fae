"""The code review scenario: find planted defects and report them by file and line.

- ``scenario``: :class:`CodeReviewScenario`, its system prompt, and how tasks are made.
- ``environment``: one episode's project and its five tools.
- ``plants``: the defects that are planted: bugs, vulnerabilities, style problems.
- ``families``: the kinds of task, level by level.
- ``rewards``: precision and recall of the reports.
- ``wording``: random wordings of requests.
"""
