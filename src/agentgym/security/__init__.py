"""Keep secrets out of a run's files and output, and log executed commands.

- ``redaction``: replaces secrets in text that is written or shown.
- ``log_file``: writes the output of other processes to a file, without secrets.
- ``audit``: writes a log of executed commands and their callers.

This package only needs the standard library, because other Python environments import
it too.
"""
