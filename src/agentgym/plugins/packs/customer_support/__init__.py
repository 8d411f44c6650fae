"""The customer support scenario: a shop's help desk, its rules, and customers.

- ``scenario``: :class:`CustomerSupportScenario`, its prompt, how tasks are made.
- ``environment``, ``database``: the shop of one episode, the tools and the rules.
- ``customer``: the scripted customer.
- ``rewards``: the reward of an episode.
- ``families``: the kinds of task, level by level; ``story``: how a task is made up.
- ``names``: words for random shops and customers.
- ``talk``, ``wording``: the phrases of the customers.
"""
