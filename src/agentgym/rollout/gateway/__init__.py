"""HTTP gateway: Agent Lightning's protocol, chat completions, forwarding."""
