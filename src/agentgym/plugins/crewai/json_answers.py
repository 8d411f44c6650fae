"""Ask the agent's own model for the JSON of a task's ``output_json``.

CrewAI asks for this JSON through the package instructor, which creates another client
from the model's address or name. That client knows neither the episode nor the trained
model. The patched method is not public: a test fails when CrewAI changes it.
"""

from types import ModuleType
from typing import Any

from agentgym.integrations.redirect import model_for


class _AskedInForm:
    """Converts an answer to JSON, as CrewAI does for ``output_pydantic``."""

    def __init__(self, converter: Any) -> None:
        self._converter = converter

    def to_json(self) -> str:
        """Return the text as JSON; if a request to the model fails, repeat it."""
        made = self._converter.to_pydantic(self._converter.max_attempts)
        return str(made.model_dump_json(indent=2))


def patch_converters(module: ModuleType) -> None:
    """Patch CrewAI's converters to request JSON from AgentGym's models directly.

    For other models, CrewAI still uses instructor.
    """
    kind: Any = module.Converter
    create = kind._create_instructor

    def _create_instructor(self: Any) -> Any:
        from agentgym.plugins.crewai.gateway import PlainLLM

        is_ours = isinstance(self.llm, PlainLLM)
        is_ours = is_ours or model_for("crewai") is not None
        return _AskedInForm(self) if is_ours else create(self)

    kind._create_instructor = _create_instructor
