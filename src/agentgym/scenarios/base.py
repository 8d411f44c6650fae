"""Scenario: tasks, an environment, tools and a reward. Subclass it to train on it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agentgym.core.components import TrainTokens, components_of
from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolSpec, bound_tools
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import ScenarioError
from agentgym.scenarios.reported import ReportedReward

if TYPE_CHECKING:
    from agentgym.sandbox import LazySandbox, SandboxConfig


class Environment(ABC):
    """The live state of one episode. Methods marked with ``@tool`` are its tools.

    A tool returns the text that the agent sees, raises ``ToolError`` to refuse, and
    raises ``RuleViolation`` when a rule of the scenario forbids the call.

    Attributes:
        needs_answer: Whether a program that prints no answer has failed; False if the
            reward reads something else.
        posted: The reward that the agent, a program, posted.
    """

    needs_answer: bool = True
    posted: ReportedReward | None = None

    def folder(self) -> Path | None:
        """Return the folder with the task's files, in which a program works.

        Returns:
            None (the default) if the task has no files: the program gets an empty
                folder.
        """
        return None

    def at_close(self, end: Callable[[], None]) -> None:
        """Make :meth:`close` call a function first, which ends running processes.

        Only environments with a :meth:`folder` need it.
        """

    def tools(self) -> list[Tool]:
        """Return the tools bound to this episode."""
        return bound_tools(self)

    def user_reply(self, message: str) -> str | None:
        """Return the user's reply to an answer of the agent.

        Called each time the agent answers without a tool call. It must return None at
        some point: ``Scenario.max_turns`` limits the model calls of the whole
        conversation, for each role separately.

        Args:
            message: The agent's answer, maybe empty.

        Returns:
            The user's next message; None (the default) ends the conversation.
        """
        return None

    def changed_files(self) -> dict[str, str | None]:
        """Return the agent's text files that differ from the task's; by default none.

        They are stored in the trajectory. A deleted file has the value None.
        """
        return {}

    def end_state(self) -> dict[str, Any]:
        """Return the final state as JSON values, for people; empty by default.

        It is stored in the trajectory, and `agentgym view` shows it. Files belong to
        :meth:`changed_files`.
        """
        return {}

    def close(self) -> None:
        """Release the episode's resources. Called exactly once, also after errors."""


def own_environment[E: Environment](kind: type[E], environment: Environment) -> E:
    """Return the environment, checked to be of the scenario's own class.

    Raises:
        ScenarioError: It is of another class.
    """
    if not isinstance(environment, kind):
        raise ScenarioError(f"{environment!r} is not an environment of this scenario.")
    return environment


class Scenario(ABC):
    """Tasks, an environment, tools, a reward, and success criteria.

    Attributes:
        name: Its name on the command line.
        description: One line for lists.
        difficulty: ``beginner``, ``intermediate`` or ``advanced``.
        estimated_time: Text for people, e.g. ``"about 5 minutes on 2 cores"``.
        reward_range: Lowest and highest value of ``calculate_reward``.
        max_turns: Most model calls of each role in an episode, over all turns of the
            user.
        splits: Splits that have tasks. Add ``Split.OUT_OF_VOCABULARY`` if it has test
            tasks in words that no other split uses.
        options: Names of options in its reference, such as ``data`` in
            ``bfcl?data=wheel.whl``; its class gets them as keyword arguments, as text.
        agents: The scenario's own agent, as ``module:name``, by framework, used if the
            user names none. Empty (the default): the framework's usual agent with the
            scenario's prompt and tools.
        extras: Extras of this package that it needs, e.g. ``code-quality``; remote
            machines install them too.
        train_tokens: The tokens that the model learns from: ``calls``,
            ``calls+reasoning`` or ``all``. Choose ``all`` if the reward reads the text
            of the answer. The setting of the same name overrides it.
        judges_work: Whether a reward reads the files that a program leaves, so that the
            program's tools need not be known.
        has_check: Whether ``success`` of a reward shows that an attempt is right. Set
            it to False if there is no such check, and let attempts succeed that are not
            clearly wrong: a judge (``--judge``) ranks them.
        unsafe_local_exec: Set by the runner if the user allowed model-written code to
            run without a sandbox.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]]
    estimated_time: ClassVar[str]
    reward_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    max_turns: ClassVar[int] = 10
    splits: ClassVar[tuple[Split, ...]] = (Split.TRAIN, Split.VALIDATION, Split.TEST)
    options: ClassVar[tuple[str, ...]] = ()
    agents: ClassVar[dict[str, str]] = {}
    extras: ClassVar[tuple[str, ...]] = ()
    train_tokens: ClassVar[TrainTokens] = "calls"
    judges_work: bool = False
    has_check: bool = True
    unsafe_local_exec: bool = False

    @staticmethod
    def from_tools(
        tools: Any = (),
        *,
        tasks: str | PathLike[str],
        check: Callable[..., float | bool] | str | None = None,
        name: str | None = None,
        answers: str = "recorded",
        allow: Sequence[str] = (),
    ) -> "Scenario":
        """Create a scenario from tools and a file of tasks with their expected calls.

        Args:
            tools: Functions with types and docstrings, pairs of a ``ToolSpec`` and a
                callable, or ``module:name`` of such a list. For training, other
                processes must be able to import them. Not needed if each line of the
                file has ``tools``.
            tasks: A JSON Lines file; see docs/your_tasks.md.
            check: ``check(task, calls, state)``, which scores instead of the expected
                calls; returns a bool, or a number from 0 to 1, where 1 is a success.
            name: Name of the scenario; by default the file's.
            answers: How calls are answered: ``recorded``, ``stub`` or ``live``.
            allow: Tools that ``live`` may call; others are never called.

        Raises:
            UsageError: The file, a line of it, or an argument cannot be used.
            ScenarioError: A tool has no docstring or types.
        """
        # By name, since the class is a Scenario and imports this module.
        make = resolve_name("agentgym.scenarios.tool_tasks.scenario:from_tools")
        made: Scenario = make(
            tools, tasks=tasks, check=check, name=name, answers=answers, allow=allow
        )
        return made

    @abstractmethod
    def system_prompt(self) -> str:
        """Return the agent's system prompt: its role and its rules."""

    @abstractmethod
    def tools(self) -> list[ToolSpec]:
        """Return the tools of every episode, in a fixed order.

        Return ``[]`` if each task has its own tools: agents then get those of the
        environment, :meth:`Environment.tools`.
        """

    @abstractmethod
    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return ``count`` tasks of ``split``, families interleaved evenly.

        The same arguments give the same tasks on every machine, and no task,
        phrase or entity of one split occurs in another.
        """

    def held_out(self, seed: int, count: int) -> dict[str, list[Task]]:
        """Return the task sets of the before/after table, the main one first.

        Args:
            seed: Seed of the tasks.
            count: Number of tasks in the main set; others may be smaller.
        """
        return {"held-out": self.tasks(Split.TEST, seed, count)}

    @abstractmethod
    def create_environment(self, task: Task) -> Environment:
        """Return a new environment in the task's initial state."""

    @abstractmethod
    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score a finished episode from the environment's state.

        It may run code (hidden tests), so it is called in a worker, before
        ``environment.close()``. The agent's own claims must not count.

        Raises:
            Exception: Any exception; the rollout is then retried or dropped, not scored
                0.
        """

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return the calls of the task's shortest solution, in order; optional.

        With it, an evaluation reports which tool was called instead of the right one,
        and which arguments were wrong. ``agentgym scenarios check`` plays these calls,
        which must succeed. They do not affect rewards.

        Returns:
            None (the default) if they are not known.
        """
        return None

    def judge_changes(self, task: Task, changes: Mapping[str, str]) -> Reward | None:
        """Return the reward of a task's project after these changes; optional.

        For scenarios that reward code. ``agentgym scenarios check`` tests changes that
        must earn nothing: more tests, tidy code that does nothing.

        Args:
            task: The task.
            changes: Files written by the agent: relative path to text.

        Returns:
            None (the default) if code is not rewarded.
        """
        return None

    def vocabulary(self, split: Split) -> set[str]:
        """Return the words and phrases that only tasks of ``split`` may use.

        ``agentgym scenarios check`` searches for them in the instructions of other
        splits. Empty (the default) declares none.
        """
        return set()

    def broadcast_rewards(self, trajectory: Trajectory) -> list[float]:
        """Return a reward for each model call.

        By default every call gets the trajectory's reward plus its own inner rewards
        (:func:`agentgym.reward`), which others do not get. Only called for scored
        trajectories.

        Returns:
            One reward per model call. Giving each turn the final outcome follows
            AgentFlow (arXiv:2510.05592).
        """
        reward = trajectory.get_total_reward()
        if reward is None:
            return []
        inner = [sum(call.rewards.values()) for call in trajectory.model_calls]
        shared = reward - sum(inner)
        return [shared + own for own in inner]

    def define_trainable_components(self) -> dict[str, bool]:
        """Return by component of the policy's text whether the loss covers it.

        By default ``train_tokens`` decides; override it for another choice.
        """
        return components_of(self.train_tokens)

    def rehearsal(self) -> "Scenario":
        """Return a scenario for agents that call arbitrary tools; by default itself.

        If its tools act on the real world, return one whose tools do not. Agents
        without a model use it, also in tripwires.
        """
        return self

    def live_tools(self) -> frozenset[str]:
        """Return the names of the tools that really run, with the user's permission."""
        return frozenset()

    def success_criteria(self) -> dict[str, float]:
        """Return the shares on validation tasks at which training ends early.

        ``tool_reliability`` and ``success_rate`` are minimum shares, 0..1;
        ``cost_reduction``, against the baseline, is only reported. Success must be
        included: an agent that makes one harmless call and gives up is perfectly
        reliable.
        """
        return {
            "tool_reliability": 0.95,
            "success_rate": 0.90,
            "cost_reduction": 0.30,
        }

    @property
    def sandbox(self) -> "LazySandbox":
        """The sandbox for agents' code, opened at first use."""
        from agentgym.sandbox import LazySandbox

        made = LazySandbox(self.sandbox_config)
        sandbox: LazySandbox = vars(self).setdefault("_sandbox", made)
        return sandbox

    def sandbox_config(self) -> "SandboxConfig":
        """Return how to open :attr:`sandbox`, e.g. with which packages."""
        from agentgym.sandbox import SandboxConfig

        return SandboxConfig(unsafe_local_exec=self.unsafe_local_exec)

    def close(self) -> None:
        """Close the sandbox, which is shared by episodes. Called once, at the end."""
        if sandbox := vars(self).get("_sandbox"):
            sandbox.close()

    def notes(self) -> list[str]:
        """Return notes about the tasks for users, in sentences.

        They are shown in a run's plan. The default is none.
        """
        return []

    def card(self) -> dict[str, Any]:
        """Return the data for ``agentgym scenarios show``."""
        return {
            "name": self.name,
            "description": self.description,
            "difficulty": self.difficulty,
            "estimated_time": self.estimated_time,
            "tools": [spec.to_openai()["function"] for spec in self.tools()],
            "trainable_components": self.define_trainable_components(),
            "success_criteria": self.success_criteria(),
            "system_prompt": self.system_prompt(),
        }
