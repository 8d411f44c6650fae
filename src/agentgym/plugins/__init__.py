"""Features apart from the core, a folder each, and a table of all that they register.

The core imports none of them. It looks a name up in this table as it looks up those of
other packages: by the group and the name of an entry point. So a package of anybody's
adds the same things with the same words, in its pyproject.toml::

    [project.entry-points."agentgym.commands"]
    hello = "my_package.commands:hello"

See ``docs/plugins.md``.
"""

import os
import sys
from collections.abc import Mapping
from functools import cache
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_HERE = "agentgym.plugins"

REGISTERED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "agentgym.commands": {
            "rollout": f"{_HERE}.collect.commands:rollout",
            "improve": f"{_HERE}.improve.commands:improve",
            "solve": f"{_HERE}.team.commands:solve",
            "view": f"{_HERE}.view.commands:view",
            "gateway": f"{_HERE}.lightning.commands:gateway",
            "job": f"{_HERE}.lightning.commands:job",
            "doctor": f"{_HERE}.doctor.commands:doctor",
            "test": f"{_HERE}.contract.commands:check",
            "skill": f"{_HERE}.skill.commands:skill",
            "tasks from-logs": f"{_HERE}.logs.commands:from_logs",
            "tasks from-reviews": f"{_HERE}.logs.commands:from_reviews",
            "gpu": f"{_HERE}.cloud.commands:app",
        },
        "agentgym.frameworks": {
            "adk": f"{_HERE}.adk:AdkAdapter",
            "agent_framework": f"{_HERE}.agent_framework:AgentFrameworkAdapter",
            "autogen": f"{_HERE}.autogen:AutoGenAdapter",
            "command": f"{_HERE}.programs.adapter:CommandAdapter",
            "crewai": f"{_HERE}.crewai:CrewAIAdapter",
            "llamaindex": f"{_HERE}.llamaindex:LlamaIndexAdapter",
            "openai_agents": f"{_HERE}.openai_agents:OpenAIAgentsAdapter",
            "pydantic_ai": f"{_HERE}.pydantic_ai:PydanticAIAdapter",
            "smolagents": f"{_HERE}.smolagents:SmolagentsAdapter",
            "strands": f"{_HERE}.strands:StrandsAdapter",
        },
        # Patches of a framework, applied once this module of it is imported.
        "agentgym.patches": {
            "google.adk": f"{_HERE}.adk:AdkAdapter.patch",
            "agent_framework": f"{_HERE}.agent_framework:AgentFrameworkAdapter.patch",
            "autogen_agentchat.agents": f"{_HERE}.autogen:AutoGenAdapter.patch",
            "crewai": f"{_HERE}.crewai:CrewAIAdapter.patch",
            "llama_index.core": f"{_HERE}.llamaindex:LlamaIndexAdapter.patch",
            "agents": f"{_HERE}.openai_agents:OpenAIAgentsAdapter.patch",
            "pydantic_ai": f"{_HERE}.pydantic_ai:PydanticAIAdapter.patch",
            "smolagents": f"{_HERE}.smolagents:SmolagentsAdapter.patch",
            "strands": f"{_HERE}.strands:StrandsAdapter.patch",
        },
        # Functions that return a trajectory as records, each a line of a file.
        "agentgym.trajectory_formats": {
            "atif": f"{_HERE}.formats.exports:atif_records",
            "openai": f"{_HERE}.formats.exports:chat_records",
        },
        # Functions that convert a line without ``instruction`` to a tasks file's line.
        "agentgym.task_formats": {
            "function_calling": f"{_HERE}.formats.function_calling:as_task_line",
        },
        # Functions that write trajectories to a whole file.
        "agentgym.exports": {
            "inspect": f"{_HERE}.formats.exports:write_log",
        },
        # Groups of a run's settings.
        "agentgym.settings": {
            "judge": f"{_HERE}.judge.group:JudgeSettings",
            "faults": f"{_HERE}.faults.group:FaultSettings",
            "user": f"{_HERE}.bench.group:UserSettings",
            "rent": f"{_HERE}.cloud.group:RentSettings",
            "gpus": f"{_HERE}.vllm.group:GpuSettings",
            "vllm": f"{_HERE}.vllm.group:VllmSettings",
            "verl": f"{_HERE}.verl.group:VerlSettings",
            "rollouts": f"{_HERE}.calls.group:RolloutSettings",
        },
        # Changes of a run's scenario.
        "agentgym.scenario_changes": {
            "user": f"{_HERE}.bench.group:set_user_model",
            "faults": f"{_HERE}.faults.inject:add_faults",
        },
        # Which engine `--engine auto` is.
        "agentgym.auto_engine": {
            "chosen": f"{_HERE}.vllm.support:chosen",
            "named": f"{_HERE}.vllm.support:named",
            "elsewhere": f"{_HERE}.vllm.support:elsewhere",
        },
        # The gateway's requests besides model calls.
        "agentgym.gateway": {"api": f"{_HERE}.lightning.api:LightningApi"},
        "agentgym.engines": {
            "vllm": f"{_HERE}.vllm.support:VllmEngines",
            "verl": f"{_HERE}.verl.support:VerlEngines",
            "lightning": f"{_HERE}.lightning.support:LightningEngines",
        },
        # The key `rewards` of a tasks file.
        "agentgym.code_rewards": {
            "read": "agentgym.packs.kit.code_rewards.tasks_file:read_rewards",
            "extras": "agentgym.packs.kit.code_rewards.tasks_file:extras_of_file",
        },
        # Models that are converted to a folder for transformers.
        "agentgym.models": {"gguf": f"{_HERE}.gguf.conversion:converted_folder"},
        # Questions of a run about machines that may be rented.
        "agentgym.machines": {
            "check": f"{_HERE}.cloud.auto:check",
            "settle": f"{_HERE}.cloud.auto:settle",
            "expected_time": f"{_HERE}.cloud.auto:expected_time",
            "bill": f"{_HERE}.cloud.record:bill",
            "machine_of": f"{_HERE}.cloud.record:machine_of",
        },
        "agentgym.places": {
            "ssh": f"{_HERE}.cloud.remote:OverSSH",
            "rented": f"{_HERE}.cloud.rented:Rented",
        },
        "agentgym.scenario_cards": {
            "packs": "agentgym.packs:CARDS",
            "bench": f"{_HERE}.bench:CARDS",
            "team": f"{_HERE}.team:CARDS",
            "formats": f"{_HERE}.formats:CARDS",
        },
        "agentgym.judge": {
            "is_judged": f"{_HERE}.judge.group_judge:is_judged",
            "located": f"{_HERE}.judge.group_judge:located",
            "check": f"{_HERE}.judge.group_judge:check_judge",
            "open": f"{_HERE}.judge.group_judge:open_judge",
            "plan_words": f"{_HERE}.judge.group_judge:plan_words",
            "judging_words": f"{_HERE}.judge.group_judge:judging_words",
        },
        # The kind of training rollouts: episodes or single calls.
        "agentgym.sampling": {
            "open": f"{_HERE}.calls.call_rollouts:open_sampling",
            "samples_calls": f"{_HERE}.calls.call_rollouts:samples_calls",
        },
        "agentgym.languages": {
            "javascript": f"{_HERE}.languages.javascript:JavaScript",
            "go": f"{_HERE}.languages.go:Go",
            "rust": f"{_HERE}.languages.rust:Rust",
            "typescript": f"{_HERE}.languages.javascript:TypeScript",
            "java": f"{_HERE}.languages.compiled:Java",
            "cpp": f"{_HERE}.languages.compiled:Cpp",
        },
        # Reports on a run that has ended.
        "agentgym.reports": {
            "write": f"{_HERE}.view.report:write_reports",
            "html": f"{_HERE}.view.report:run_html",
        },
    }
)
"""``module:name`` by the name and the group of an entry point."""


def points(group: str) -> "list[EntryPoint]":
    """Return the entry points of a group in installed packages, by name."""
    # Importing and searching importlib.metadata takes 40 ms, this search 5 ms.
    if not any(_declares(group, folder) for folder in sys.path):
        return []
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda point: point.name)


def _declares(group: str, folder: str) -> bool:
    path = os.path.abspath(folder)
    try:
        return _has_section(group, path, os.stat(path).st_mtime_ns)
    except OSError:
        return False


@cache
def _has_section(group: str, folder: str, changed: int) -> bool:
    """Search a folder of packages, again if it was ``changed`` by an installation."""
    for entry in os.scandir(folder):
        if entry.name.endswith((".dist-info", ".egg-info")):
            try:
                with open(os.path.join(entry.path, "entry_points.txt"), "rb") as file:
                    if f"[{group}]".encode() in file.read():
                        return True
            except OSError:
                continue
    return False


def registered(group: str, name: str) -> Any:
    """Return an object that a plug-in of this package registers, by group and name."""
    return resolve_name(REGISTERED[group][name])
