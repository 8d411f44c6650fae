"""smolagents: train its ToolCallingAgent, which smolagents itself runs."""

from agentgym.integrations.client_adapter import ClientAdapter


class SmolagentsAdapter(ClientAdapter):
    """Adapter for ``ToolCallingAgent`` of smolagents 1.26, with managed agents."""

    name = "smolagents"
    title = "smolagents"
    extra = "smolagents"
    agents = "an agent of smolagents: a ToolCallingAgent"
    models = "a model of smolagents"
    modules = ("smolagents", "openai")
    packages = ("smolagents",)
    inspector = "agentgym.plugins.smolagents.agents"
    preload = ("openai.resources", inspector)
