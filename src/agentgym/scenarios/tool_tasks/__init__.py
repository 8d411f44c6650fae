"""A scenario without Python code: a tasks file, and an agent's own tools.

``task_file.py`` reads the file, ``splitting.py`` separates its splits, ``answers.py``
answers the tools' calls in training, ``reward.py`` scores the expected calls, and
``scenario.py`` combines them. Files are created by ``starter.py`` from schemas alone,
by ``written.py`` with a model, by ``logs/`` from logs; ``recording.py`` records
answers.
"""
