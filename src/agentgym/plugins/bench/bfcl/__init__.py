"""The Berkeley Function Calling Leaderboard, version 4, as a scenario.

- ``scenario.py``: the scenario.
- ``package.py`` downloads and reads the benchmark's own package, ``bfcl-eval``.
  AgentGym contains neither its data nor its code.
- ``entries.py`` reads the entries (test cases), assigns them to splits, and converts
  their functions to tools. Those of multi-turn entries act on simulated programs.
- ``answers.py`` builds right calls from the argument values that an entry accepts.
- ``verdict.py`` runs the benchmark's checker for single-turn entries.
- ``programs.py`` runs these simulated programs in the sandbox, with ``replay.py``.
"""
