"""The testing scenario: write tests that fail on mutants of the code.

- ``scenario``: :class:`QaTestingScenario`, its system prompt, and how tasks are made.
- ``environment``: one episode's project, its five tools, and its tests.
- ``cases``: a test as a call with its value.
- ``families``: the kinds of task, level by level, and their mutants.
- ``rewards``: mutants that are detected by tests which pass on the right code.
- ``wording``: random wordings of requests.
"""
