"""Keep secrets out of a run's texts, and log who executed what.

- ``redaction``: secrets taken out of text, wherever it is written or shown.
- ``log_file``: the output of other processes in a file, without secrets.
- ``audit``: a log of executed commands and their callers.

Standard library only: processes of other environments import it, too.
"""
