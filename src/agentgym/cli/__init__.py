"""The command line: one file per group of commands, which only call the library."""
