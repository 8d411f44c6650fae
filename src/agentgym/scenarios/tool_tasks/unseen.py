"""An agent's own tools, whose schemas are unknown until the agent runs.

Their schema is the one that the model is offered, in the first request that has it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agentgym.core.needs import NeededCall
from agentgym.core.task import Task
from agentgym.core.tools import ToolSpec
from agentgym.core.trajectory import Trajectory
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.tool_tasks.lines import arguments_fault

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_EVERY = 1_000_000
_MOST_SHOWN = 3
_NONE = object()
_MEANT = [["s"], *map(list, "0123456789")]  # get_orders is not a slip of get_order
_HAND_OFF = re.compile(r"transfer_(back_)?to_|hand_?off|delegate_", re.IGNORECASE)


class _AnyArguments(BaseModel):
    model_config = ConfigDict(extra="allow")


class UnseenSpec(ToolSpec):
    """A tool that accepts any arguments until a request shows its schema.

    Agents of a team may have different tools of one name; a call fits one of them.
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
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return False
        if _HAND_OFF.match(name):
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
    """Give tools whose schema is unknown the one in the requests of an episode.

    The tools of an agent's own that were called in it are added.
    """
    if isinstance(specs, AgentTools):
        for made in trajectory.get_tool_calls():
            if made.was_answered and made.name not in specs:
                specs[made.name] = UnseenSpec(made.name)
    for call in trajectory.model_calls:
        learn_schemas(specs.values(), call.tools)


def misfits(scenario: Scenario, learned: Mapping[str, UnseenSpec]) -> str:
    """Return a sentence on expected calls that the offered tools refuse; "" if none."""
    wrong = []
    for task, call in _expected(scenario, learned):
        spec = learned[call.tool]
        fault = arguments_fault(spec, dict(call.arguments)) if spec.is_known else ""
        if fault and not call.by_outcome:
            wrong.append(f"{task.id}: {fault}{'.' * (fault[-1] != '?')}")
    more = f" … and {len(wrong) - _MOST_SHOWN} more." * (len(wrong) > _MOST_SHOWN)
    listed = " ".join(wrong[:_MOST_SHOWN])
    if "is a required property" in listed:
        more += ' Where any value is right, write {"anything": true}.'
    return f"Tasks expect calls that its tools refuse. {listed}{more}" if wrong else ""


def misspelt(
    scenario: Scenario,
    learned: Mapping[str, UnseenSpec],
    offered: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return a sentence on a name of the tasks that no trial offered; "" if none.

    The name of an offered tool, which takes the call's arguments, is nearly the same.
    """
    for task, call in _expected(scenario, learned):
        for name in () if call.tool in offered else offered:
            one, other = Counter(name), Counter(call.tool)
            letters = [*(one - other).elements(), *(other - one).elements()]
            if len(letters) > 1 or letters in _MEANT:
                continue
            spec = UnseenSpec(name)
            spec.learn(offered[name])
            if spec.is_known and not arguments_fault(spec, dict(call.arguments)):
                return (
                    f"{task.id}: no tool is named {call.tool!r}. Did you mean {name!r}?"
                    " If it is another tool, which the agent offers only after other "
                    "answers, go on with --yes (or --set yes=true)."
                )
    return ""


def _expected(
    scenario: Scenario, learned: Mapping[str, UnseenSpec]
) -> Iterator[tuple[Task, NeededCall]]:
    splits = scenario.splits if learned else ()  # only a tasks file has such tools
    for task in (t for s in splits for t in scenario.tasks(s, 0, _EVERY)):
        for need in scenario.needed_calls(task) or ():
            found = (call for call in (need, *need.instead) if call.tool in learned)
            yield from ((task, call) for call in found)
