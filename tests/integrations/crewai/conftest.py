"""CrewAI is imported here as workers import it: without telemetry."""

import os

from agentgym.integrations.crewai.quiet import QUIET

os.environ.update(QUIET)
