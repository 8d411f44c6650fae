"""HTTP server: connections, keys and routes of the gateway."""
