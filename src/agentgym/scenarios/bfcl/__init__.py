"""The Berkeley Function Calling Leaderboard, version 4, as a scenario.

``package.py`` finds and reads the benchmark's own package, ``entries.py`` its tasks and
splits, ``functions.py`` converts its functions to tools, ``answers.py`` derives right
calls from its answers, ``verdict.py`` runs its own checker. For multi-turn tasks,
``conversations.py`` reads the entries, and ``programs.py`` runs the simulated programs
in the sandbox, with the script ``replay.py``. ``scenario.py`` combines them. This
project contains neither data nor code of the benchmark.
"""
