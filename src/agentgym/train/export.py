"""What a run leaves: its agent, saved as the next version of its scenario's name."""

from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel

from agentgym.core.agent import AgentSpec
from agentgym.core.config import TrainingConfig
from agentgym.core.files import agents_home, disk_trouble, new_folder
from agentgym.engines.base import Engine
from agentgym.errors import AgentGymError
from agentgym.evaluate.compare import lost_families
from agentgym.evaluate.metrics import Metrics
from agentgym.scenarios.base import Scenario
from agentgym.train.run_folder import RunState
from agentgym.train.trained_agent import MODEL_FOLDER, Provenance, TrainedAgent
from agentgym.train.versions import Versions

_PACKAGES = ("agentgym", "agentlightning", "torch", "transformers", "langchain")


class Saved(BaseModel, frozen=True, extra="forbid"):
    """What a run's agent was saved as.

    Attributes:
        name: What ``TrainedAgent.load`` takes: ``coding@4``.
        is_default: Whether it became the default, which ``coding`` alone means.
        reason: Why it did or did not, in words.
    """

    name: str
    is_default: bool
    reason: str


def export_agent(
    engine: Engine,
    scenario: Scenario,
    config: TrainingConfig,
    *,
    folder: Path,
    step: int,
    state: RunState,
    baseline: Metrics,
    metrics: Metrics,
) -> tuple[Path, Saved]:
    """Write the agent into ``folder`` of a run and keep it under the scenario's name.

    Returns:
        The folder, and what it was saved as.
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
        run=str(folder.resolve().parent),
        steps=step,
        episodes=state.episodes,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        versions=_versions(),
    )
    with new_folder(folder) as temporary:
        engine.export(temporary / MODEL_FOLDER)
        TrainedAgent(
            path=temporary,
            spec=spec,
            provenance=provenance,
            baseline=baseline,
            metrics=metrics,
        ).write_card()
    return folder, keep(TrainedAgent.load(folder.resolve()), scenario.name)


def keep(agent: TrainedAgent, name: str) -> Saved:
    """Save an agent as the next version of ``name``; as the default only if better.

    A run that is worse, or was measured on less, never becomes the default by itself.

    Raises:
        UsageError: The name is none, or ``AGENTGYM_HOME`` cannot be written.
    """
    with Versions(name).locked() as versions:
        is_default, reason = _verdict(agent, versions)
        try:
            saved = versions.add(agent.path)
        except OSError as error:
            why = disk_trouble(error) or str(error)
            raise AgentGymError(
                f"The agent cannot be saved in {agents_home()}: {why}. Free some space "
                f"there, or set AGENTGYM_HOME to another disk. It is in {agent.path}."
            ) from error
        if is_default:
            versions.set_default(saved)
    return Saved(name=str(saved), is_default=is_default, reason=reason)


def _verdict(agent: TrainedAgent, versions: Versions) -> tuple[bool, str]:
    """Say whether ``agent`` is to be the default, and why."""
    default, new = versions.default(), agent.metrics
    is_better = new.pass_1 > agent.baseline.pass_1
    shares = _apart(new, agent.baseline)
    if not versions.all():
        reason = f"it is the first version of {versions.name}"
        worse = f", though not better than before training: {shares}"
        return True, reason if is_better else f"{reason}{worse}"
    if not is_better:
        return False, f"it is not better than before training: {shares}"
    if versions.is_pinned:
        return False, f"{default} was chosen with `agentgym agents use`"
    if default is None:
        return True, f"{versions.name} had no default any more"
    try:
        known = TrainedAgent.load(default.path)
    except AgentGymError:
        return True, f"{default}, the default until now, cannot be read"
    old = known.metrics
    if known.spec.scenario != agent.spec.scenario:
        return False, f"{default} was trained on {known.spec.scenario}, not on the same"
    if new.tasks < old.tasks:
        return False, (
            f"it was measured on {new.tasks:,} held-out tasks, {default} on "
            f"{old.tasks:,}"
        )
    if not new.pass_1 >= old.pass_1:
        return False, f"{default} solves more: {_apart(old, new)}"
    if lost := lost_families(old, new):
        named = ", ".join(change.words() for change in lost)
        return False, f"it lost families of tasks that {default} had: {named}"
    if new.pass_1 > old.pass_1:
        return True, f"it solves more than {default} did: {_apart(new, old)}"
    return True, f"it solves as many held-out tasks as {default} did"


def _apart(first: Metrics, second: Metrics) -> str:
    """Write which shares of the tasks two solve, so that they differ if they do."""
    shares = [100 * found.pass_1.value for found in (first, second)]
    for digits in range(3):
        one, other = (f"{share:.{digits}f} %" for share in shares)
        if one != other:
            return f"{one} against {other} of held-out tasks"
    return f"{shares[0]:.0f} % of held-out tasks"


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
