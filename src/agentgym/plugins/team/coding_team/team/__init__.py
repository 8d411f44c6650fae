"""The coding team as a LangGraph graph, written like a user's own graph.

- ``state``: the graph's typed state, shared by all roles.
- ``routing``: the rules that decide which role may be next.
- ``turns``: one turn of a role: the prompts, its attempts, then the graph's own code if
  they fail.
- ``person``: the questions to a person.
- ``graph``: the nodes, combined by :func:`graph.build_team`.

This folder imports no other part of AgentGym. The graph acts through its tools: those
of :class:`agentgym.plugins.team.coding_team.environment.TeamEnvironment`, or others
with the same names.
"""
