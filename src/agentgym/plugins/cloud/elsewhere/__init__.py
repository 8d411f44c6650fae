"""Train on a remote machine, controlled from the client (the user's machine)."""
