"""The running batch: which requests it has, and one decoding step of all of them."""
