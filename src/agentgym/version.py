"""The version of the package, where everything can import it."""

__version__ = "0.1.0"
