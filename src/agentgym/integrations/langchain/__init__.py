"""Train and export LangChain agents and LangGraph graphs; LangGraph runs them."""

from agentgym.integrations.client_adapter import ClientAdapter


class LangChainAdapter(ClientAdapter):
    """Adapter for compiled LangGraph graphs and LangChain >= 1.4's ``create_agent``."""

    name = "langchain"
    title = "LangChain"
    extra = "langchain"
    agents = "a compiled graph"
    models = "a chat model of LangChain's"
    modules = ("langchain", "langgraph", "langchain_openai")
    packages = ("langgraph", "langchain", "langchain_core")
    context_argument = "context"
    takes_any_input = True
    takes_graph_options = True
    inspector = "agentgym.integrations.langchain.conversation"
    preload = (
        "langchain.agents",
        "langchain_core.prompts.chat",
        "httpcore",
        "openai.resources",
        "agentgym.integrations.langchain.models",
        "agentgym.integrations.langchain.redirect",
    )
