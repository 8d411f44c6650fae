"""Train agents and workflows of Microsoft Agent Framework; the framework runs them."""

from agentgym.integrations.client_adapter import ClientAdapter


class AgentFrameworkAdapter(ClientAdapter):
    """Adapter for ``Agent`` and workflows of agents of agent-framework-core 1.23."""

    name = "agent_framework"
    title = "Agent Framework"
    extra = "agent-framework"
    agents = "an Agent of Agent Framework, or the Workflow that a builder builds"
    models = "a chat client of Agent Framework's"
    modules = ("agent_framework", "agent_framework_openai", "openai")
    packages = ("agent_framework", "agent_framework_openai")
    takes_any_input = True
    inspector = "agentgym.plugins.agent_framework.agents"
    preload = ("openai.resources", inspector)
