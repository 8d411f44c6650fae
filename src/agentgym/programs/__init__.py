"""Programs of the user's: named by a command, started, bounded, ended with children."""
