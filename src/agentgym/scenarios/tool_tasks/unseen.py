"""An agent's own tools, whose schemas are unknown until a request offers them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agentgym.core.tools import ToolSpec, name_fault
from agentgym.core.trajectory import Trajectory

_NONE = object()
_HAND_OFF = re.compile(r"transfer_(back_)?to_|hand_?off|delegate_", re.IGNORECASE)


class _AnyArguments(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True)


class UnseenSpec(ToolSpec):
    """A tool that accepts any arguments until a request shows its schema.

    Agents may have different tools of one name; a call fits one of them.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, "", _AnyArguments)
        vars(self).update(others=[], seen=[])

    @property
    def is_known(self) -> bool:
        """Whether a request has shown the tool's schema."""
        return self.args_model is not _AnyArguments

    def learn(self, offered: Mapping[str, Any]) -> None:
        """Take the schema of an OpenAI function, unless it is bad."""
        from agentgym.scenarios.schemas import spec_of_openai  # jsonschema is slow

        seen: list[Any] = vars(self)["seen"]
        if offered.get("parameters") in seen:
            return
        seen.append(offered.get("parameters"))
        try:
            spec = spec_of_openai(offered)
        except ValueError:
            return
        others: list[ToolSpec] = vars(self)["others"]
        if self.is_known:
            others.append(spec)
            return
        vars(self).pop("parameters", None)
        vars(self).update(description=spec.description, args_model=spec.args_model)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check ``arguments``, and return them without those that are defaults."""
        # Frameworks fill in defaults, also None where the schema does not allow it.
        properties = self.parameters.get("properties", {})
        required = self.parameters.get("required", ())
        given = {
            name: value
            for name, value in arguments.items()
            if name in required or not _is_default(value, properties.get(name))
        }
        try:
            return super().validate(given)
        except ValidationError:
            others: list[ToolSpec] = vars(self)["others"]
            for each in others:
                if each.accepts(given):
                    return each.validate(given)
            raise


def _is_default(value: Any, schema: Any) -> bool:
    default = schema.get("default", _NONE) if isinstance(schema, dict) else _NONE
    return type(default) is type(value) and bool(default == value)


class AgentTools(dict[str, ToolSpec]):
    """An agent's own tools: those that tasks name, and those that it calls."""

    def admit(self, name: Any) -> bool:
        """Add a tool that only tasks name; return whether the name can be a tool's."""
        # Training does not replace a hand-off, so that it has no answer.
        if name_fault(name) or _HAND_OFF.match(name):
            return False
        self[name] = UnseenSpec(name)
        return True


class AnyTools(AgentTools):
    """Tools of any name, to check tasks before an agent is imported."""

    def admit(self, name: Any) -> bool:
        """Add a tool of any name."""
        self[str(name)] = UnseenSpec(str(name))
        return isinstance(name, str)


def unseen(specs: Iterable[ToolSpec]) -> dict[str, UnseenSpec]:
    """Return the tools whose schema no request has shown yet, by name."""
    return {
        spec.name: spec
        for spec in specs
        if isinstance(spec, UnseenSpec) and not spec.is_known
    }


def learn_schemas(specs: Iterable[ToolSpec], tools: Iterable[Any]) -> None:
    """Let an agent's own tools learn their schemas from the tools of a request."""
    missing = {spec.name: spec for spec in specs if isinstance(spec, UnseenSpec)}
    for tool in tools if missing else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else {}
        if isinstance(function, dict) and function.get("name") in missing:
            missing[function["name"]].learn(function)


def learn_from(specs: Mapping[str, ToolSpec], trajectory: Trajectory) -> None:
    """Learn schemas from an episode's requests; add the agent's tools it called."""
    if isinstance(specs, AgentTools):
        for made in trajectory.get_tool_calls():
            if made.was_answered and made.name not in specs:
                specs[made.name] = UnseenSpec(made.name)
    for call in trajectory.model_calls:
        learn_schemas(specs.values(), call.tools)
