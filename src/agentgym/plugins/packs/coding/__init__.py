"""The coding scenario: find, read, edit, test and repair code in small packages.

- ``scenario``: :class:`CodingScenario`, its system prompt, and how tasks are made.
- ``environment``, ``reading``, ``checks``, ``execution``: the project of one episode,
  and the agent's eight tools.
- ``rewards``: the reward of an episode.
- ``families``, ``drafts``: the kinds of task, level by level.
- ``names``, ``functions``, ``projects``: random projects.
- ``references``, ``wording``: the phrases of the requests, and for files.
"""
