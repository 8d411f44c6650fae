"""Google ADK: train agents of Google's Agent Development Kit, which runs them."""

import sys

from agentgym.integrations.client_adapter import ClientAdapter


class AdkAdapter(ClientAdapter):
    """Adapter for agents of google-adk 2, with sub-agents and agents as tools."""

    name = "adk"
    title = "Google ADK"
    extra = "adk"
    agents = "an agent of Google ADK: an Agent, or a workflow agent of several"
    models = "a model of Google ADK"
    modules = ("google.adk", "openai")
    inspector = "agentgym.plugins.adk.agents"
    preload = ("openai.resources", inspector)

    def owns(self, root: str) -> bool:
        """Return whether a module may be one of ADK, which shares ``google``."""
        return root == "google" and "google.adk" in sys.modules
