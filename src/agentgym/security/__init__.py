"""Keep secrets out of a run's files and output, and log executed commands.

- ``redaction``: replaces secrets in text that is written or shown.
- ``log_file``: the output of other processes in a file, without secrets.
- ``audit``: a log of executed commands and their callers.

This package only needs the standard library, because other Python environments import
it too.
"""
