"""A scenario without Python code: a tasks file, and an agent's own tools.

``task_file.py`` reads the tasks file, ``splitting.py`` assigns its tasks to splits,
``answers.py`` answers tool calls in training, ``reward.py`` scores the expected calls,
and ``scenario.py`` combines these modules. Tasks files are created by ``starter.py``
from schemas alone, by ``written.py`` with a model, by ``logs/`` from logs;
``recording.py`` calls the tools once and records their answers.
"""
