"""Find framework adapters by name, and import ``module:name``."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from agentgym.core.plugins import Plugins, load_object
from agentgym.errors import MissingExtraError, UsageError
from agentgym.integrations.base import FrameworkAdapter

FRAMEWORKS = Plugins(
    FrameworkAdapter,
    "framework",
    {
        "agent_framework": (
            "agentgym.integrations.agent_framework.adapter:AgentFrameworkAdapter"
        ),
        "autogen": "agentgym.integrations.autogen.adapter:AutoGenAdapter",
        "command": "agentgym.integrations.command.adapter:CommandAdapter",
        "crewai": "agentgym.integrations.crewai.adapter:CrewAIAdapter",
        "langchain": "agentgym.integrations.langchain.adapter:LangChainAdapter",
        "native": "agentgym.integrations.native:NativeAdapter",
        "openai_agents": (
            "agentgym.integrations.openai_agents.adapter:OpenAIAgentsAdapter"
        ),
        "pydantic_ai": "agentgym.integrations.pydantic_ai.adapter:PydanticAIAdapter",
    },
    group="agentgym.frameworks",
)


def require(modules: list[str], extra: str, purpose: str) -> None:
    """Raise MissingExtraError if some of ``modules`` are not installed.

    The modules are not imported. ``extra`` is the pip extra that installs them. The
    error message starts with ``purpose``, e.g. ``The CrewAI adapter``.
    """
    if any(find_spec(module) is None for module in modules):
        raise MissingExtraError(extra, purpose)


def load_factory(reference: str, *, option: str = "--agent") -> Callable[..., Any]:
    """Import the factory ``"my_package.my_module:make_agent"``.

    The working folder is importable, as for ``python -m``. Error messages name the
    reference with its command-line option, ``option``.

    Raises:
        UsageError: The reference is malformed, cannot be imported, or is not callable.
    """
    factory = load_object(reference, option=option)
    if not callable(factory):
        raise UsageError(f"{reference} is a {type(factory).__name__}, not callable.")
    function: Callable[..., Any] = factory
    return function
