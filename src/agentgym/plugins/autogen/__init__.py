"""Train and export AutoGen's agents and teams; AutoGen itself runs them."""

from agentgym.integrations.client_adapter import ClientAdapter


class AutoGenAdapter(ClientAdapter):
    """Adapter for agents and teams of autogen-agentchat 0.7."""

    name = "autogen"
    title = "AutoGen"
    extra = "autogen"
    agents = "an AssistantAgent, or a team such as RoundRobinGroupChat"
    models = "a model client of AutoGen's"
    modules = ("autogen_agentchat.agents", "autogen_ext", "openai", "tiktoken")
    packages = ("autogen_agentchat", "autogen_core", "autogen_ext")
    takes_any_input = True
    inspector = "agentgym.plugins.autogen.agents"
    preload = ("openai.resources", inspector)
