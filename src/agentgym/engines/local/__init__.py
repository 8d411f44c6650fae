"""The local engine: trains with torch in this process, on the CPU or one GPU."""
