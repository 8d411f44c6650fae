"""Groups of settings that only one part of the program reads, and their flat keys."""
