"""The version of the package, where everything can import it."""

__version__ = "0.1.0"
DISTRIBUTION = "agentgym-sdk"
"""The name on a package index; ``agentgym`` belongs to another project there."""
