"""Save a run's trained agent as the next version under its name."""

from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agentgym.core.agent import AgentSpec
from agentgym.core.config import TrainingConfig
from agentgym.core.files import agents_folder, disk_trouble, new_folder
from agentgym.core.records import FrozenRecord
from agentgym.errors import AgentGymError, UsageError
from agentgym.evaluate.compare import lost_families, solves_more
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import percent
from agentgym.models.folder import model_source, name_base
from agentgym.models.template import keep_template, template_of
from agentgym.scenarios.base import Scenario
from agentgym.train.trained_agent import MODEL_FOLDER, Provenance, TrainedAgent
from agentgym.train.versions import Versions
from agentgym.version import DISTRIBUTION

if TYPE_CHECKING:
    from agentgym.train.run_context import RunContext

_PACKAGES = (DISTRIBUTION, "agentlightning", "torch", "transformers", "langchain")


class Saved(FrozenRecord):
    """The saved version of a run's agent.

    Attributes:
        name: Name and version for ``TrainedAgent.load``, e.g. ``coding@4``.
        is_default: Whether ``coding`` without a number loads this version.
    """

    name: str
    is_default: bool
    reason: str


def export_agent(
    run: "RunContext", step: int, metrics: Metrics, *, is_measured: bool = True
) -> Saved:
    """Write the engine's weights into the run's folder, and save them as a version.

    The weights had ``step`` updates. If not ``is_measured``, their ``metrics`` are of
    validation tasks, not held-out ones, and the version does not become the default.
    """
    config, scenario, state = run.config, run.scenario, run.state
    folder = run.folder.path / "agent"
    spec = AgentSpec(
        scenario=scenario.name,
        framework=config.framework,
        agent=config.agent.reference,
        system_prompt=scenario.system_prompt(),
        tools=[tool.to_openai() for tool in scenario.tools()],
        max_turns=scenario.max_turns,
        max_tokens=config.answer_tokens,
        temperature=config.eval_temperature,
    )
    provenance = Provenance(
        base_model=config.model,
        config=config.model_dump(mode="json"),
        run=str(folder.resolve().parent),
        folder=str(Path.cwd()),
        steps=step,
        is_measured=is_measured,
        episodes=state.episodes,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        versions=_versions(),
    )
    with new_folder(folder) as temporary:
        run.engine.export(temporary / MODEL_FOLDER)
        used = template_of(model_source(config.model), config.template)
        keep_template(temporary / MODEL_FOLDER, used)
        name_base(temporary / MODEL_FOLDER)
        TrainedAgent(
            path=temporary,
            spec=spec,
            provenance=provenance,
            baseline=next(iter(state.baseline.values())),
            metrics=metrics,
        ).write_card()
    agent = TrainedAgent.load(folder.resolve())
    return keep(agent, config.agent_name, is_measured=is_measured)


def export_best(run: "RunContext") -> str | None:
    """Save the best validated weights of a run as a version; say which, if any."""
    best, found = run.folder.best_checkpoint(run.state), run.state.best_validation
    if best is None or found is None:
        return None
    run.engine.load_checkpoint(best)
    step = run.state.watch.best_step
    saved = export_agent(run, step, found, is_measured=False)
    return (
        f"The best weights so far, of step {step} (validation "
        f"{percent(found.pass_1.value)}), are {saved.name}. {saved.name} is not the "
        "default: it was not measured on held-out tasks."
    )


class Identity(NamedTuple):
    """The properties that identify an agent among the saved agents.

    Attributes:
        agent: ``module:name`` of the user's agent; None for a scenario's own agent.
        source: File or folder of the scenario's tasks.
        tools: Names of the tools that every task offers. They identify the agent if its
            project was moved to a new folder.
    """

    agent: str | None
    scenario: str
    source: str
    tools: frozenset[str]

    @classmethod
    def of_run(cls, config: TrainingConfig, scenario: Scenario) -> "Identity":
        """Return the identity of the agent that a run trains."""
        tools = frozenset(spec.name for spec in scenario.tools())
        return cls(
            config.agent.reference, scenario.name, _source(config.scenario), tools
        )

    @classmethod
    def of_saved(cls, trained: TrainedAgent) -> "Identity":
        """Return the identity of a saved agent."""
        spec = trained.spec
        tools = frozenset(tool["function"]["name"] for tool in spec.tools)
        return cls(spec.agent, spec.scenario, _source(trained.scenario), tools)

    def is_of(self, other: "Identity") -> bool:
        """Return whether this identity and ``other`` belong to the same agent."""
        same = (self.agent, self.scenario) == (other.agent, other.scenario)
        alike = bool(self.tools) and self.tools == other.tools
        return same and (alike or self.source == other.source)

    def name(self, wanted: str) -> str:
        """Return ``wanted``, with a number added if another agent has this name."""
        names = (wanted if n == 1 else f"{wanted}-{n}" for n in count(1))
        return next(name for name in names if self._holder(name) is None)

    def require_free(self, name: str) -> None:
        """Raise UsageError if another agent is already saved under a name."""
        if (other := self._holder(name)) is not None:
            agent = other.spec.agent or "the scenario's own agent"
            raise UsageError(
                f"{name!r} is the name of another agent: {other.name} is {agent}, "
                f"trained on {other.spec.scenario} ({_source(other.scenario)}). Choose "
                "another --name."
            )

    def _holder(self, name: str) -> TrainedAgent | None:
        """Return the agent that is saved under a name if it is another agent."""
        for each in reversed(Versions(name).all()):
            try:
                found = TrainedAgent.load(each.path)
            except AgentGymError:
                continue  # unreadable: an older version has the identity
            return None if self.is_of(Identity.of_saved(found)) else found
        return None


def _source(reference: str) -> str:
    """Return the name or path in a setting ``scenario``, without its options."""
    return reference.partition("?")[0]


def keep(agent: TrainedAgent, wanted: str, *, is_measured: bool = True) -> Saved:
    """Save an agent as the next version, and make it the default if it is better.

    It must be measured on held-out tasks (``is_measured``) and solve significantly more
    of them than the untrained agent. If there is a default version, the new one must
    also solve significantly more than that one, be measured on at least as many tasks,
    and not be significantly worse in any family (kind) of tasks. A default version that
    the user chose stays. If another agent has the name ``wanted``, a number is added to
    the name.
    """
    name = Identity.of_saved(agent).name(wanted)
    with Versions(name).locked() as versions:
        is_default, reason = False, "it was not measured on held-out tasks"
        if is_measured:
            is_default, reason = _verdict(agent, versions)
        try:
            saved = versions.add(agent.path)
        except OSError as error:
            why = disk_trouble(error) or str(error)
            raise AgentGymError(
                f"The agent cannot be saved in {agents_folder()}: {why}. Free some "
                f"space there, or set AGENTGYM_HOME to another disk. It is in "
                f"{agent.path}."
            ) from error
        if is_default:
            versions.set_default(saved)
    return Saved(name=str(saved), is_default=is_default, reason=reason)


def _verdict(agent: TrainedAgent, versions: Versions) -> tuple[bool, str]:
    """Return whether ``agent`` becomes the default version, and the reason."""
    default, new = versions.default(), agent.metrics
    is_better = solves_more(agent.baseline, new)
    shares = _apart(new, agent.baseline)
    if not is_better:
        return False, f"it is not better than before training beyond chance: {shares}"
    if not versions.all():
        return True, f"it is the first version of {versions.name}"
    if versions.is_pinned:
        return False, f"{default} was chosen with `agentgym agents use`"
    if default is None:
        return True, f"{versions.name} had no default"
    try:
        known = TrainedAgent.load(default.path)
    except AgentGymError:
        return True, f"{default}, the default until now, cannot be read"
    old = known.metrics
    if new.tasks < old.tasks:
        return False, (
            f"it was measured on {new.tasks:,} held-out tasks, {default} on "
            f"{old.tasks:,}"
        )
    if new.pass_1 < old.pass_1:
        return False, f"{default} solves more: {_apart(old, new)}"
    if lost := lost_families(old, new):
        named = ", ".join(change.words() for change in lost)
        return False, f"it lost families of tasks that {default} had: {named}"
    if not solves_more(old, new):
        why = f"it is not better than {default} beyond chance: {_apart(new, old)}"
        return False, why
    return True, f"it solves more than {default} did: {_apart(new, old)}"


def _apart(first: Metrics, second: Metrics) -> str:
    """Format two shares of solved tasks with enough digits to show a difference."""
    shares = [100 * found.pass_1.value for found in (first, second)]
    for digits in range(3):
        one, other = (f"{share:.{digits}f} %" for share in shares)
        if one != other:
            return f"{one} against {other} of held-out tasks"
    return f"{shares[0]:.0f} % of held-out tasks"


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
