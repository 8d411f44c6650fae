"""HTTP gateway: serve agents' model calls, and Agent Lightning's protocol."""
