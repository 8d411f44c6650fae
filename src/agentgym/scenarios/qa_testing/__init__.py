"""The testing scenario: write tests that detect mutants (code with one fault).

- ``scenario``: :class:`QaTestingScenario`, its system prompt, and how tasks are made.
- ``environment``: one episode's project, its five tools, and its tests.
- ``cases``: a test as a call with its value.
- ``families``: the kinds of task, level by level, and their mutants.
- ``rewards``: the share of mutants that tests detect; right code must pass.
- ``wording``: random wordings of requests.
"""
