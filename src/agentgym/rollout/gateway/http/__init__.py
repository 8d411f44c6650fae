"""HTTP: connections, keys and routes, beneath everything that is answered."""
