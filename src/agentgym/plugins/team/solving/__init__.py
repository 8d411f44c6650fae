"""Solve a problem with the coding team, with any models and without training.

The team has four roles: supervisor, generator (writes code), reviewer and executor
(runs tests). Each role is an agent.

- ``models``: a chat model for each role, from names such as ``openai:NAME``.
- ``events``: reports each step of the running team, and counts tokens.
- ``solution``: the result: files, tests, findings, history, cost.
- ``solve``: sends one request, or several about one project, to the team.
"""
