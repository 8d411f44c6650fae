"""Convert scenario tools to AutoGen tools whose arguments AgentGym validates."""

from collections.abc import Mapping
from typing import Any, cast

from autogen_core import CancellationToken
from autogen_core.tools import BaseTool, ParametersSchema, ToolSchema
from pydantic import BaseModel

from agentgym.core.tools import ToolSpec
from agentgym.integrations.on_client.adapter import Run
from agentgym.plugins.autogen.redirect import written


class AutoGenSpecTool(BaseTool[BaseModel, Any]):
    """A tool whose arguments are validated by AgentGym, not by AutoGen.

    So the model reads the same error messages in training with any framework.
    """

    def __init__(self, spec: ToolSpec, run: Run) -> None:
        super().__init__(spec.args_model, str, spec.name, spec.description)
        self.spec = spec
        self._run = run
        self._schema = ToolSchema(
            name=spec.name,
            description=spec.description,
            parameters=cast(ParametersSchema, spec.parameters),
        )

    @property
    def schema(self) -> ToolSchema:
        """The tool's schema for the model, created once."""
        return self._schema

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> str:
        """Run the tool on validated arguments; agents call ``run_json`` instead."""
        return await self._run(dict(args), None)

    async def run_json(
        self,
        args: Mapping[str, Any],
        cancellation_token: CancellationToken,
        call_id: str | None = None,
    ) -> str:
        """Run the tool on the arguments as the model wrote them."""
        return await self._run(written(args), call_id)
