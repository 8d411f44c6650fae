"""Import CrewAI's modules in the process that forks the workers.

During its import, CrewAI reads the telemetry variables and creates its storage folder.
So the variables and a temporary folder are set for the import.
"""

from tempfile import TemporaryDirectory

from agentgym.integrations.crewai.quiet import QUIET, environment

with (
    TemporaryDirectory(prefix="agentgym-crewai-") as _storage,
    environment(**QUIET, CREWAI_STORAGE_DIR=_storage),
):
    import agentgym.integrations.crewai.copies
    import agentgym.integrations.crewai.gateway
    import agentgym.integrations.crewai.tools  # noqa: F401
    from agentgym.integrations.crewai.first_use import build_shared

    build_shared()
