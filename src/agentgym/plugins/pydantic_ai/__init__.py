"""pydantic-ai: train agents, which pydantic-ai itself runs."""

from agentgym.integrations.client_adapter import ClientAdapter


class PydanticAIAdapter(ClientAdapter):
    """Adapter for pydantic-ai 2: ``Agent`` with tools, toolsets and output types."""

    name = "pydantic_ai"
    title = "pydantic-ai"
    extra = "pydantic-ai"
    agents = "an Agent of pydantic-ai"
    models = "a model of pydantic-ai's"
    modules = ("pydantic_ai", "openai")
    packages = ("pydantic_ai",)
    context_argument = "deps"
    inspector = "agentgym.plugins.pydantic_ai.agents"
    preload = ("openai.resources", inspector)
