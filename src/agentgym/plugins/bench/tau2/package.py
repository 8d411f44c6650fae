"""Tau2: the modules of a checkout of τ²-bench, imported in place.

Its tools, its user simulator and its evaluator run as they are; nothing of it is part
of AgentGym. https://github.com/sierra-research/tau2-bench
"""

import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from agentgym.errors import UsageError
from agentgym.models.reference import is_remote

DOMAINS = ("airline", "retail", "telecom")
_LACKS = "{folder} is not a checkout of tau2-bench: it has no {name}."


class Tau2:
    """Imports a checkout's modules; ``folder`` is its root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder = folder.expanduser().resolve()
        for name in ("src/tau2", "data/tau2/domains"):
            if not (folder / name).is_dir():
                raise UsageError(_LACKS.format(folder=folder, name=name))
        source = str(folder / "src")
        if source not in sys.path:
            sys.path.insert(0, source)
        os.environ.setdefault("TAU2_DATA_DIR", str(folder / "data"))
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no request
        try:
            from_loguru = import_module("loguru").logger
            from_loguru.disable("tau2")
            self.registry: Any = self.module("registry").registry
        except ImportError as error:
            raise UsageError(
                f"tau2-bench in {folder} cannot be imported: {error}. Install its "
                f"packages into this environment: uv pip install -e {folder}"
            ) from None
        logging.getLogger("LiteLLM").setLevel(logging.ERROR)

    def module(self, name: str) -> Any:
        """Import ``tau2.NAME``."""
        return import_module(f"tau2.{name}")

    def tasks(self, domain: str) -> dict[str, Any]:
        """Return the tasks of a domain by id."""
        try:
            found = self.registry.get_tasks_loader(domain)(None)
        except (OSError, ValueError) as error:
            raise UsageError(f"The tasks of {domain} cannot be read: {error}") from None
        return {task.id: task for task in found}

    def splits(self, domain: str) -> dict[str, list[str]]:
        """Return the ids of a domain's splits, e.g. ``train``, by name."""
        load = self.registry.get_task_splits_loader(domain)
        return {} if load is None else dict(load())

    def environment(self, domain: str, task: Any) -> Any:
        """Return a domain's environment in the initial state of a task."""
        made = self.registry.get_env_constructor(domain)()
        state = task.initial_state
        if state is not None:
            made.set_state(
                initialization_data=state.initialization_data,
                initialization_actions=state.initialization_actions,
                message_history=list(state.message_history or ()),
            )
        made.sync_tools()
        return made

    def user(self, task: Any, environment: Any, model: str) -> Any:
        """Return τ²'s user simulator for a task, played by a model."""
        simulator = self.module("user.user_simulator").UserSimulator
        tools = environment.get_user_tools() if environment.user_tools else None
        name, options = litellm_model(model)
        return simulator(
            llm=name,
            instructions=str(task.user_scenario),
            tools=tools,
            llm_args=options,
        )

    def verdict(self, domain: str, task: Any, messages: list[Any], end: str) -> Any:
        """Return the reward of τ²'s own evaluator for an ended conversation."""
        evaluator = self.module("evaluator.evaluator")
        simulation = self.module("data_model.simulation")
        reason = simulation.TerminationReason(end)
        now = self.module("utils.utils").get_now()
        run = simulation.SimulationRun(
            id=task.id,
            task_id=task.id,
            start_time=now,
            end_time=now,
            duration=0.0,
            termination_reason=reason,
            messages=messages,
        )
        every = evaluator.EvaluationType.ALL
        return evaluator.evaluate_simulation(run, task, every, False, domain)


def litellm_model(model: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options with which litellm asks a model.

    ``openai:gpt-4.1`` is ``openai/gpt-4.1``; an address ``http://host/v1#MODEL`` is a
    server of OpenAI's API.
    """
    if "://" in model:
        address, _, name = model.partition("#")
        key = os.environ.get("AGENTGYM_API_KEY") or "none"
        return f"openai/{name or 'default'}", {"api_base": address, "api_key": key}
    if not is_remote(model):
        raise UsageError(
            f"--user-model {model}: the user is played by a provider's model, as in "
            "openai:gpt-4.1, or by a server, http://host:8000/v1#MODEL."
        )
    return model.replace(":", "/", 1), {}
