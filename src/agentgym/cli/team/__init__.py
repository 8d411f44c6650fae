"""The commands that let a team work; nothing is trained."""
