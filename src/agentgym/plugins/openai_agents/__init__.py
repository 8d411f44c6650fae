"""OpenAI Agents SDK: train agents, which the SDK itself runs."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from agentgym.errors import UnsupportedError
from agentgym.install import install_command
from agentgym.integrations.client_adapter import ClientAdapter


def _is_sdk(file: str | None) -> bool:
    return file is not None and Path(file).with_name("run_config.py").is_file()


class OpenAIAgentsAdapter(ClientAdapter):
    """Adapter for agents of openai-agents 0.20, also with hand-offs and guardrails."""

    name = "openai_agents"
    title = "OpenAI Agents SDK"
    extra = "openai-agents"
    agents = "an Agent of the OpenAI Agents SDK"
    models = "a model of the OpenAI Agents SDK"
    modules = ("agents", "openai")
    packages = ("agents",)
    context_argument = "context"
    inspector = "agentgym.plugins.openai_agents.agents"
    preload = ("openai.resources", inspector)

    def owns(self, root: str) -> bool:
        """Return whether a module is the SDK, not a user's module named ``agents``."""
        found = sys.modules.get(root) if super().owns(root) else None
        return found is not None and _is_sdk(getattr(found, "__file__", None))

    def check(self) -> None:
        """Check that the SDK is installed, and not hidden by a user's module."""
        super().check()
        spec = find_spec("agents")
        if spec is not None and not _is_sdk(spec.origin):
            raise UnsupportedError(
                f"{spec.origin} hides the package `agents` of the OpenAI Agents SDK: "
                "give it another name, and install the SDK if it is missing: "
                f"{install_command(self.extra)}"
            )

    @classmethod
    def patch(cls, module: ModuleType) -> None:
        """Patch the SDK, but not a user's module named ``agents``."""
        if _is_sdk(getattr(module, "__file__", None)):
            super().patch(module)
