"""The Berkeley Function Calling Leaderboard, version 4, as a scenario."""
