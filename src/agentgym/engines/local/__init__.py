"""The embedded engine: torch and transformers in this process, CPU or one GPU."""
