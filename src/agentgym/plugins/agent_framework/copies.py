"""Copy agents, with another chat client, and workflows, for an episode."""

import copy
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any

from agent_framework import Agent, BaseChatClient, FunctionTool, Workflow

from agentgym.errors import UnsupportedError
from agentgym.integrations.redirect import answering
from agentgym.plugins.agent_framework.redirect import client_for, for_any_model

_KNOWING_WORKFLOW = ("agent_middleware", "context_providers", "middleware")
"""Attributes of an agent that may refer to other parts of its workflow."""


def parts_of(workflow: Workflow, kind: Any) -> list[Any]:
    """Return the objects of class ``kind`` in a workflow and its nested workflows."""
    found: dict[int, Any] = {}
    for part in workflow.executors.values():
        for value in _held(vars(part).values()):
            if isinstance(value, Workflow):
                found |= {id(each): each for each in parts_of(value, kind)}
            elif isinstance(value, kind):
                found[id(value)] = value
    return list(found.values())


def _held(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def copied(agent: Agent[Any]) -> Agent[Any]:
    """Return a copy of an agent, with separate state."""
    made = copy.copy(agent)
    made.context_providers = list(agent.context_providers)
    made._async_exit_stack = AsyncExitStack()
    return made


def on_model(agent: Agent[Any], model: Any) -> Agent[Any]:
    """Return a copy of an agent that uses ``model``, as do the agents it runs."""
    made = copied(agent)
    made.client = client_for(model, agent, agent.client)
    options = for_any_model(agent.default_options)
    tools = [_on_model(tool, model) for tool in options.get("tools", ())]
    made.default_options = {**options, "tools": tools}
    return made


def _on_model(tool: FunctionTool, model: Any) -> FunctionTool:
    made = copy.copy(tool)

    async def invoke(**named: Any) -> Any:
        with answering({"agent_framework": model}.get):
            return await tool.invoke(**named)

    vars(made)["invoke"] = invoke
    return made


def workflow_copied(
    workflow: Workflow, agent: Callable[[Agent[Any]], Agent[Any]], client: Any = None
) -> Workflow:
    """Return a copy of a workflow in its initial state.

    ``agent`` copies each of its agents. ``client`` replaces its chat clients, if given.
    """
    agents = parts_of(workflow, Agent)
    made_of = {id(each): agent(each) for each in agents}
    instead: dict[int, Any] = {**made_of}
    clients = parts_of(workflow, BaseChatClient)
    instead |= {id(each): client or each for each in clients}
    try:
        made = copy.deepcopy(workflow, instead)
        for each in agents:
            for name in _KNOWING_WORKFLOW:
                whole = copy.deepcopy(getattr(each, name), instead)
                setattr(made_of[id(each)], name, whole)
        return made
    except Exception as error:  # any class may refuse with its own exception
        raise UnsupportedError(
            f"The workflow {workflow.name!r} cannot be copied, and every rollout "
            f"needs one of its own: {type(error).__name__}: {error}. Let its parts "
            "hold agents and plain values."
        ) from error
