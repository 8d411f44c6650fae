"""The customer support scenario: a shop's help desk, its rules, and customers.

- ``scenario``: :class:`CustomerSupportScenario`, its prompt, how tasks are made.
- ``environment``, ``database``: the shop of one episode, the tools and the rules.
- ``customer``: the scripted customer.
- ``rewards``: the reward of an episode.
- ``families``: the kinds of task, level by level.
- ``names``: words for random shops and customers.
- ``wording``: the phrases of the customers.
- ``demonstrations``: the oracle, a script that solves each task.
"""
