"""The vocabulary: words that every other folder uses."""
