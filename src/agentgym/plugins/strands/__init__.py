"""Strands: train agents of the Strands Agents SDK, which runs them itself."""

from agentgym.integrations.client_adapter import ClientAdapter


class StrandsAdapter(ClientAdapter):
    """Adapter for ``Agent`` of strands-agents 1.60, with agents in its tools."""

    name = "strands"
    title = "Strands"
    extra = "strands"
    agents = "an Agent of Strands"
    models = "a model of Strands"
    modules = ("strands", "openai")
    packages = ("strands",)
    inspector = "agentgym.plugins.strands.agents"
    preload = ("openai.resources", inspector)
