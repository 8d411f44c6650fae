"""Define the command line: one file per group of commands, which call the library."""
