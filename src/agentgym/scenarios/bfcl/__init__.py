"""The Berkeley Function Calling Leaderboard, version 4, as a scenario.

``package.py`` finds and reads the benchmark's own package, ``entries.py`` its tasks and
how they are split, ``functions.py`` writes its functions as tools, ``answers.py`` makes
right calls of its answers, ``verdict.py`` runs its own checker. Of conversations,
``conversations.py`` reads the entries, and ``programs.py`` runs the simulated programs
in the sandbox, by the script ``replay.py``. ``scenario.py`` puts them together. Neither
data nor code of the benchmark is part of this project.
"""
