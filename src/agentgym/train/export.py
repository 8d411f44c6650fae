"""Writing the trained agent: weights, spec, provenance, metrics."""

from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from agentgym.core.agent import AgentSpec
from agentgym.core.config import TrainingConfig
from agentgym.core.files import new_folder
from agentgym.engines.base import Engine
from agentgym.evaluate.metrics import Metrics
from agentgym.scenarios.base import Scenario
from agentgym.train.run_folder import RunState
from agentgym.train.trained_agent import MODEL_FOLDER, Provenance, TrainedAgent

_PACKAGES = ("agentgym", "agentlightning", "torch", "transformers", "langchain")


def export_agent(
    engine: Engine,
    scenario: Scenario,
    config: TrainingConfig,
    *,
    folder: Path,
    state: RunState,
    baseline: Metrics,
    metrics: Metrics,
) -> tuple[Path, str]:
    """Write the agent into ``folder`` and save it under the scenario's name.

    Returns:
        The folder, and the name that ``TrainedAgent.load`` takes.
    """
    spec = AgentSpec(
        scenario=scenario.name,
        framework=config.framework,
        agent=config.agent,
        system_prompt=scenario.system_prompt(),
        tools=[tool.to_openai() for tool in scenario.tools()],
        max_turns=scenario.max_turns,
        max_tokens=config.max_tokens,
        temperature=config.eval_temperature,
    )
    provenance = Provenance(
        base_model=config.model,
        config=config.model_dump(mode="json"),
        steps=state.step,
        episodes=state.episodes,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        versions=_versions(),
    )
    with new_folder(folder) as temporary:
        engine.export(temporary / MODEL_FOLDER)
        TrainedAgent(
            temporary,
            spec=spec,
            provenance=provenance,
            baseline=baseline,
            metrics=metrics,
        ).write_card()
    TrainedAgent.load(folder.resolve()).save(scenario.name)
    return folder, scenario.name


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
