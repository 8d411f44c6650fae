"""The coding team as a scenario; ``README.md`` lists the files."""
