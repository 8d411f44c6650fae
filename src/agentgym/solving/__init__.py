"""Solve a problem with the coding team: no training, any models, live.

- ``models``: a chat model for each role, from texts such as ``openai:NAME``.
- ``events``: who speaks, which tools run, and the tokens that it takes.
- ``solution``: the result: files, tests, findings, history, cost.
- ``session``: a team at work on one project, over several requests.
- ``solve``: one request, from the problem to the solution.
"""
