"""The coding team: a supervisor, a generator, a reviewer and an executor.

- ``team``: the LangGraph graph, as any user could write it.
- ``environment``: the project that the team works on, with the tools of all roles.
- ``languages``: Python, JavaScript, Go and Rust in its projects.
- ``measuring``: time and memory of one call.
- ``projects``: small problems to train on, with drafts of a scripted generator.
- ``rewards``: the score of an episode.
- ``agent``: the graph for training.
- ``scenario``: the scenario.
"""
