"""τ²-bench (airline, retail, telecom), from the user's own checkout."""
