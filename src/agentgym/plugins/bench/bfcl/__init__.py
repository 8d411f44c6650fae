"""The Berkeley Function Calling Leaderboard, version 4, as a scenario.

- ``scenario.py``: the scenario.
- ``package.py`` downloads and reads the benchmark's own package, ``bfcl-eval``.
  AgentGym contains neither its data nor its code.
- ``entries.py`` reads the entries (test cases), and assigns them to splits.
- ``functions.py`` converts the functions of an entry to tools.
- ``answers.py`` builds right calls from the argument values that an entry accepts.
- ``verdict.py`` runs the benchmark's checker for single-turn entries.
- ``conversations.py`` reads multi-turn entries. Their functions act on programs that
  the benchmark simulates, e.g. a file system or a trading account.
- ``programs.py`` runs these simulated programs in the sandbox, with ``replay.py``.
"""
