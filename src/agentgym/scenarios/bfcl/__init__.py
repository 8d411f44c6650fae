"""The Berkeley Function Calling Leaderboard, version 4, as a scenario.

``package.py`` finds and reads the benchmark's own package, ``entries.py`` its tasks and
how they are split, ``functions.py`` writes its functions as tools, ``answers.py`` makes
right calls of its answers, ``verdict.py`` runs its own checker, and ``scenario.py``
puts them together. Neither its data nor its code is part of this project.
"""
