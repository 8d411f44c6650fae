"""HTTP: Agent Lightning's protocol, chat completions, forwarding."""
