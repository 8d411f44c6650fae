"""How customers put things, split by split."""
