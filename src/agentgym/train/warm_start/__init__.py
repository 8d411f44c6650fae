"""Warm start: run the known calls of training tasks, and fine-tune on them."""
