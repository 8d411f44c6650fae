"""A scenario without a line of Python: a tasks file, and an agent's own tools.

``task_file.py`` reads the file, ``splitting.py`` keeps its splits apart, ``answers.py``
has the tools' answers in training, ``reward.py`` pays for the expected calls, and
``scenario.py`` puts them together. Files are made by ``starter.py`` of schemas alone,
by ``written.py`` with a model, by ``logs/`` of logs; ``recording.py`` records answers.
"""
