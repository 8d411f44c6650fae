"""What a run measures of its policy while it goes on, and within which time."""
