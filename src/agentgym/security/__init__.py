"""Keep secrets out of a run's files and output, and log executed commands.

This package only needs the standard library, because other Python environments import
it too.
"""
