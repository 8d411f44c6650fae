"""What is written about a run, and what must not be.

- ``redaction``: secrets taken out of text, wherever it is written or shown.
- ``log_file``: what other processes write, in a file, without secrets.
- ``audit``: what was executed, and who asked for it.

Standard library only: what of this package runs in other environments uses it too.
"""
