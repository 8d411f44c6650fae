"""Import CrewAI's modules, and build its shared objects in one thread.

During its import, CrewAI reads the telemetry variables and creates its storage folder.
So the variables and a temporary folder are set for the import.

In its first run, CrewAI iterates over the attributes of its executor class and then
adds an attribute. If two episodes start at the same time, each in its own thread, one
episode would fail with "dictionary changed size during iteration".
"""

from tempfile import TemporaryDirectory

from agentgym.integrations.redirect import build_models
from agentgym.plugins.crewai.quiet import QUIET, environment

with (
    TemporaryDirectory(prefix="agentgym-crewai-") as _storage,
    environment(**QUIET, CREWAI_STORAGE_DIR=_storage),
):
    import openai.resources.chat  # noqa: F401 - else imported at the first request
    from crewai.agents.agent_executor import AgentExecutor

    import agentgym.plugins.crewai.agents  # noqa: F401

    AgentExecutor.flow_definition()
    build_models()
