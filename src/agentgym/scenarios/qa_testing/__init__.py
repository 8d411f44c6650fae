"""The testing scenario: write tests that kill planted mutants.

- ``scenario``: :class:`QaTestingScenario`, its system prompt, and how tasks are made.
- ``environment``: one episode's project, its five tools, and the tests so far.
- ``cases``: a test as a call with its value.
- ``families``: the kinds of task, level by level, and their mutants.
- ``rewards``: mutants killed by tests that pass on the right code.
- ``wording``: the grammar of requests.
"""
