"""The coding team as a LangGraph graph, as any user of LangGraph could write it.

- ``state``: the graph's typed state, shared by all roles.
- ``routing``: the rules of who may take the next turn.
- ``prompts``: the system prompts, and the request of each turn.
- ``turns``: one turn of a role: its attempts, and its stand-in if they fail.
- ``person``: the questions to a person.
- ``graph``: the nodes, put together by :func:`graph.build_team`.

Of AgentGym, this folder imports itself alone. The graph acts through the tools that it
is given: those of :class:`agentgym.scenarios.coding_team.environment.TeamEnvironment`,
or others with the same names.
"""
