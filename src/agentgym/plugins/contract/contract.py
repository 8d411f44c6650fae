"""Contract: the tasks, samples and limits that an agent must keep."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, Field

from agentgym.cli.options import named_agent, own_tools, tasks_or_scenario, with_tools
from agentgym.core.config import TrainingConfig
from agentgym.core.settings import Settings
from agentgym.core.task import EVERY_SPLIT, Split
from agentgym.errors import ConfigError, NotFoundError, UsageError
from agentgym.evaluate.criteria import Gate
from agentgym.evaluate.intervals import estimate_ratio
from agentgym.integrations.agent_import import is_reference
from agentgym.plugins.faults.inject import WITH_FAULTS
from agentgym.scenarios.packs import is_tasks_file
from agentgym.scenarios.task_lists import MOST_SEARCHED

_SHORT = {"reliability": "tool_reliability"}
_OF_TASKS, _WITH_FAULTS = "tasks", "with_faults"
_MOST_NEEDED = 2000


@dataclass(frozen=True)
class Limit:
    """A minimum of a share, of all tasks or of the attempts at one task.

    Attributes:
        task: Id of the only task; None for all tasks.
        variant: Name of the other conditions, e.g. with faults, or None.
    """

    gate: Gate
    task: str | None = None
    variant: str | None = None

    @classmethod
    def parse(cls, name: str, least: Any, **where: str) -> Self:
        """Parse a line of the contract's ``limits``."""
        gate = Gate.parse(f"{_SHORT.get(name, name)}={least}", by_low=True)
        return cls(gate, **where)

    @property
    def name(self) -> str:
        """The limit as in the contract, e.g. ``pass_1 >= 0.8``."""
        of = self.task or self.variant
        where = "" if of is None else f"{of}: "
        return f"{where}{self.gate.metric} >= {self.gate.least:g}"

    def too_few(self, count: int) -> str | None:
        """Return why ``count`` tasks or samples can never reach the limit, or None."""
        if _best_low(count) >= self.gate.least:
            return None
        of, more = "tasks", "write more tasks"
        if self.task is not None:
            of, more = "samples", "raise `samples`"
        more_than = range(count + 1, _MOST_NEEDED)
        needed = next((n for n in more_than if _best_low(n) >= self.gate.least), None)
        how = f"{more}, {needed} in all" if needed else f"no number of {of} is enough"
        return (
            f"{self.name} cannot be reached with {count} {of}: even if all attempts "
            f"succeed, the lower end of the interval is {_best_low(count):.3f}. Either "
            f"{how}, or lower the limit."
        )


def _best_low(count: int) -> float:
    """Return the lower end of the interval if all of ``count`` tasks succeed."""
    return estimate_ratio([(1.0, 1.0)] * count).low


class Contract(Settings):
    """A contract file in YAML.

    Attributes:
        tasks: A tasks file, relative to the contract's folder, or a scenario.
        agent: ``module:name``, or the name of a saved agent.
        command: A program instead of ``agent``.
        model: The model that answers; a saved agent has its own.
        count: Most tasks; None takes all of a tasks file, else the setting
            ``test_tasks``.
        limits: Minimums by metric; those of single tasks below ``tasks``, those with
            injected faults below ``with_faults``.
        settings: Further settings of a run, as with ``--set``.
        recording: The file of the model's answers, relative to the contract's folder.
            By default the contract's name with ``.recording.jsonl``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tasks: str
    agent: str | None = None
    command: str | None = None
    framework: str | None = None
    model: str | None = None
    split: str | None = None
    count: int | None = Field(None, ge=1, le=MOST_SEARCHED)
    samples: int = Field(4, ge=1, le=1000)
    seed: int | None = None
    tools_from: str | None = None
    tools: str | None = None
    allow_tools: tuple[str, ...] = ()
    check: str | None = None
    check_command: str | None = None
    limits: dict[str, Any]
    settings: dict[str, Any] = Field(default_factory=dict)
    recording: str | None = None

    @property
    def is_saved(self) -> bool:
        """Whether ``agent`` names a saved agent, which has its own model."""
        return self.agent is not None and not is_reference(self.agent)

    @property
    def measured_split(self) -> str:
        """The split to measure: by default all of a tasks file, else test."""
        usual = EVERY_SPLIT if is_tasks_file(self.tasks) else Split.TEST
        if self.split not in (None, *Split, EVERY_SPLIT):
            raise NotFoundError(
                "split", self.split or "", [*map(str, Split), EVERY_SPLIT]
            )
        return self.split or usual

    def config(self, folder: Path) -> TrainingConfig:
        """Return the settings of the rollouts; ``folder`` is the contract's."""
        chosen = {"model": self.model, "framework": self.framework, "seed": self.seed}
        if self.is_saved and self.model is not None:
            raise ConfigError(
                f"{self.agent} is a saved agent, and has its model: leave out `model`."
            )
        agent = named_agent(self.agent, self.command, may_be_saved=True)
        if not self.is_saved:
            chosen["agent.reference"] = agent
        scenario, answers, allow = self.tasks, self.tools, list(self.allow_tools)
        if is_tasks_file(scenario):
            scenario = tasks_or_scenario(None, folder / scenario) or scenario
        elif agent is not None:
            chosen |= own_tools(answers, allow)
            answers, allow = None, []
        options = self.tools_from, answers, allow, self.check, self.check_command
        chosen["scenario"] = with_tools(scenario, *options)
        count = self.count or (MOST_SEARCHED if is_tasks_file(self.tasks) else None)
        chosen |= {"eval_samples": self.samples, "test_tasks": count}
        twice = chosen.keys() & TrainingConfig.flat(self.settings).keys()
        if twice := {name for name in twice if chosen[name] is not None}:
            raise ConfigError(
                f"settings has {sorted(twice)[0]}, which the contract says itself."
            )
        return TrainingConfig.create(**chosen, **self.settings)

    def all_limits(self) -> Iterator[Limit]:
        """Yield the limits of all tasks together, then those of single tasks."""
        groups: dict[str, Any] = {_OF_TASKS: {}, _WITH_FAULTS: {}}
        for name, least in self.limits.items():
            if name not in groups:
                yield Limit.parse(name, least)
            elif not isinstance(least, Mapping):
                raise ConfigError(f"limits.{name} holds limits, a line each.")
            else:
                groups[name] = least
        for name, least in groups[_WITH_FAULTS].items():
            yield Limit.parse(name, least, variant=WITH_FAULTS)
        for task, limits in groups[_OF_TASKS].items():
            if not isinstance(limits, Mapping):
                limits = {"pass_1": limits}
            for name, least in limits.items():
                yield Limit.parse(name, least, task=str(task))

    def checked_limits(self, tasks: Sequence[str]) -> list[Limit]:
        """Return the limits; raise UsageError if one can never be reached.

        ``tasks`` are the ids of the tasks to measure.
        """
        limits = list(self.all_limits())
        if not limits:
            raise ConfigError("limits is empty: write one, as in pass_1: 0.8.")
        for limit in limits:
            if limit.task is not None and limit.task not in tasks:
                raise NotFoundError("task", limit.task, tasks)
            count = len(tasks) if limit.task is None else self.samples
            if problem := limit.too_few(count):
                raise UsageError(problem)
        return limits


def read_contract(path: Path) -> Contract:
    """Read a contract file."""
    if not path.is_file():
        beside = sorted(each.name for each in path.parent.glob("*.y*ml"))
        raise NotFoundError("contract", str(path), beside)
    return Contract.from_yaml(path)
