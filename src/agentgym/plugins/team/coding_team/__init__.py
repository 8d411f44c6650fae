"""The coding team: a supervisor, a generator, a reviewer and an executor.

- ``team``: the LangGraph graph, as any user could write it.
- ``environment``: the project that the team works on, and the tools of all roles.
- ``languages``: the languages of projects: Python and those of the sandbox.
- ``projects``: small problems to train on, with code for a scripted generator.
- ``rewards``: the reward of an episode.
- ``agent``: create the graph for training.
- ``scenario``: :class:`CodingTeamScenario`, its system prompt and its tasks.
"""
