"""Import the modules that every worker needs, in the process that forks workers.

CrewAI decides on telemetry, and makes its storage folder, when it is imported.
"""

from tempfile import TemporaryDirectory

from agentgym.integrations.crewai.quiet import QUIET, environment

with (
    TemporaryDirectory(prefix="agentgym-crewai-") as _storage,
    environment(**QUIET, CREWAI_STORAGE_DIR=_storage),
):
    import agentgym.integrations.crewai.gateway
    import agentgym.integrations.crewai.tools  # noqa: F401
