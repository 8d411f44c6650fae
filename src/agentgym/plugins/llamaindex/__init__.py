"""LlamaIndex: train its function-calling agents, which LlamaIndex itself runs."""

from agentgym.integrations.client_adapter import ClientAdapter


class LlamaIndexAdapter(ClientAdapter):
    """Adapter for ``FunctionAgent`` and ``AgentWorkflow`` of llama-index-core 0.14."""

    name = "llamaindex"
    title = "LlamaIndex"
    extra = "llamaindex"
    agents = "an agent of LlamaIndex: a FunctionAgent or an AgentWorkflow"
    models = "an LLM of LlamaIndex"
    modules = ("llama_index.core", "llama_index.llms.openai")
    packages = ("llama_index",)
    addressee = "to_agent"
    inspector = "agentgym.plugins.llamaindex.agents"
    preload = ("openai.resources", inspector)
