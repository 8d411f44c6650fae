"""A scenario without Python code: a tasks file, and an agent's own tools.

A tasks file has one request of a user per line, with the tool calls that the request
needs (the expected calls).

``task_file.py`` reads the tasks file, ``splitting.py`` assigns its tasks to splits,
``answers.py`` answers tool calls in training, ``reward.py`` compares the agent's calls
with the expected calls, and ``scenario.py`` combines these modules. Three modules
create tasks files: ``starter.py`` from the tools' schemas, ``written.py`` with a
language model, and ``logs/`` from logs. ``recording.py`` calls the tools once and
records their answers.
"""
