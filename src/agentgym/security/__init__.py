"""Keep secrets out of a run's files and output, and log executed commands.

Other Python environments import this package too, so most of it only needs the standard
library.
"""
