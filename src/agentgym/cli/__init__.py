"""The command line: one file per group of commands; commands only call the library."""
