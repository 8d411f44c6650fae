"""The coding scenario: find, read, edit, test and repair code in small packages.

- ``scenario``: :class:`CodingScenario`, its system prompt, and how tasks are made.
- ``environment``, ``reading``, ``checks``, ``execution``: one episode's project and the
  eight tools.
- ``rewards``: the score of an episode.
- ``families``: the kinds of task, level by level.
- ``names``, ``functions``, ``projects``, ``layout``: random projects.
- ``wording``: random wordings of requests.
- ``demonstrations``: the oracle, which makes the calls of the right solution.
"""
