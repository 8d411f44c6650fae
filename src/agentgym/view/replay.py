"""Build the command with which another model attempts a rollout's task."""

import shlex
from collections.abc import Mapping
from typing import Any

from agentgym.core.nested.keys import flattened
from agentgym.core.task import EVERY_SPLIT
from agentgym.scenarios.packs import is_tasks_file

MODEL = "MODEL"
"""Placeholder in the command, which the user replaces by a model's name."""


def replay_command(config: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    """Return the command with which another model attempts a task of a run.

    If the run trained a user's own agent, this agent attempts the task; otherwise
    AgentGym's agent, which ``agentgym rollout`` runs. Run the command in the folder in
    which the run was started, so that the agent's module is found.
    """
    settings, scenario = flattened(config), str(config.get("scenario"))
    is_file = is_tasks_file(scenario)
    split = EVERY_SPLIT if is_file else task["split"]
    which = ["--task", task["id"], "--split", split, "--seed", str(task["seed"])]
    if settings.get("agent.reference") is None:
        where = ["--tasks", scenario] if is_file else [scenario]
        words = ["rollout", *where, *(which[:2] if is_file else which)]
    else:
        words = ["eval", scenario, *which, *_agent_options(settings, is_file=is_file)]
        words += ["--samples", "1", "--no-baselines"]
    return shlex.join(["agentgym", *words, "--model", MODEL])


def _agent_options(settings: Mapping[str, Any], *, is_file: bool) -> list[str]:
    """Return the command-line options that select a user's own agent, as in the run.

    If the scenario is a tasks file (``is_file``), the options for tools are left out.
    """
    words = ["--agent", str(settings["agent.reference"])]
    for name in ("framework", "agent.context", "agent.inputs"):
        if value := settings.get(name):
            words += [f"--{name.removeprefix('agent.')}", str(value)]
    for key, value in (settings.get("agent.configurable") or {}).items():
        words += ["--configurable", f"{key}={value}"]
    if not is_file:
        if tools := settings.get("agent.own_tools"):
            words += ["--tools", str(tools)]
        for name in settings.get("agent.allow_tools") or ():
            words += ["--allow-tool", str(name)]
    return words
