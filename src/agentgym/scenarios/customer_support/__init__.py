"""The customer support scenario: a shop's help desk, its rules, and customers.

- ``scenario``: :class:`SupportScenario`, its system prompt, and how tasks are made.
- ``environment``, ``database``: one episode's shop, the tools and the rules.
- ``customer``: the scripted customer.
- ``rewards``: the score of an episode.
- ``families``: the kinds of task, level by level.
- ``names``, ``wording``: random shops, and random wordings of requests.
- ``demonstrations``: the oracle, which makes the calls of the right solution.
"""
