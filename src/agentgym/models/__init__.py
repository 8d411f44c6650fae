"""Resolve model names, call models on servers, and hold the shipped policy."""
