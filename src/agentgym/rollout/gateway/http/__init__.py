"""Serve HTTP for the gateway: connections, keys and routes."""
