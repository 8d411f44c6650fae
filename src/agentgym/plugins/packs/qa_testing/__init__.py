"""The testing scenario: write tests that detect mutants (code with one fault).

- ``scenario``: :class:`QaTestingScenario`, its system prompt, and how tasks are made.
- ``environment``: the project of one episode, and the agent's five tools.
- ``cases``: parse a test, a function call with its expected value.
- ``families``: the kinds of task, level by level, and their mutants.
- ``rewards``: the reward, from the share of mutants that the agent's tests detect.
- ``wording``: the phrases of the requests.
"""
