"""Resolve model names, call models on servers, and provide the built-in policy nano."""
