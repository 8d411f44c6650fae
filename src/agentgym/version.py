"""The version of the package, importable from everywhere."""

__version__ = "0.1.0"
DISTRIBUTION = "agentgym-sdk"
"""The name on the package index, where ``agentgym`` is another project."""
