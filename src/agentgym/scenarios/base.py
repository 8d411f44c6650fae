"""Scenario: what to train on. Subclass it, fill in four methods, and train."""

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
    """The live state of one episode. Methods marked ``@tool`` are its tools.

    A tool returns the text that the agent sees, raises ``ToolError`` to refuse, and
    raises ``RuleViolation`` when a rule of the scenario forbids the call.

    Attributes:
        needs_answer: Whether a program that prints no answer has failed; not where
            the reward looks elsewhere.
        posted: The reward that the agent, a program, has given its episode.
    """

    needs_answer: bool = True
    posted: ReportedReward | None = None

    def folder(self) -> Path | None:
        """Return the folder with the task's files, where a program is to work.

        Returns:
            None, the default, if the task has no files: the program gets an empty one.
        """
        return None

    def at_close(self, end: Callable[[], None]) -> None:
        """Have :meth:`close` call a function first, which ends a running process.

        It is for environments with a :meth:`folder`; others have nothing to end.
        """

    def tools(self) -> list[Tool]:
        """Return the tools bound to this episode."""
        return bound_tools(self)

    def user_reply(self, message: str) -> str | None:
        """Return the user's reply to an answer of the agent.

        Called each time the agent answers without a tool call. Must return None at some
        point: ``Scenario.max_turns`` counts the model calls of the whole conversation,
        of each role of a team on its own.

        Args:
            message: The agent's answer, maybe empty.

        Returns:
            The user's next message; None, the default, ends the conversation.
        """
        return None

    def changed_files(self) -> dict[str, str | None]:
        """Return the agent's text files that differ from the task's; by default none.

        A trajectory holds them. The value of one that is gone is None.
        """
        return {}

    def end_state(self) -> dict[str, Any]:
        """Return the state at the end as JSON values, for people; by default none.

        A trajectory holds it, and `agentgym view` shows it. Files belong to
        :meth:`changed_files`.
        """
        return {}

    def close(self) -> None:
        """Release the episode's resources. Called exactly once, also after errors."""


def own_environment[E: Environment](kind: type[E], environment: Environment) -> E:
    """Return the environment as one of a scenario's own class.

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
        estimated_time: For people, e.g. ``"about 5 minutes on 2 cores"``.
        reward_range: Lowest and highest value that ``calculate_reward`` returns.
        max_turns: Model calls of one role of a team, or of the only one, after which
            an episode is cut, over all turns of the user.
        splits: Those that it has tasks of. Add ``Split.OUT_OF_VOCABULARY`` if it has
            test tasks in words that no other split uses.
        options: Names of options that its reference may have, as ``data`` in
            ``bfcl?data=wheel.whl``; its class takes them by name, as text.
        agents: The scenario's own agent, as ``module:name``, by framework, for users
            who name none. Empty, the default: an agent of the framework's usual kind,
            with the scenario's prompt and tools.
        extras: Extras of this package that it needs, as ``code-quality``; remote
            machines get them too.
        train_tokens: Which of its own tokens the model learns from: ``calls``,
            ``calls+reasoning`` or ``all``. Choose ``all`` if the reward reads the text
            of the answer. The setting of the same name overrides it.
        judges_work: Whether a reward looks at the files that a program leaves, so that
            the program's tools need not be known.
        has_check: Whether a reward's ``success`` says that an attempt is right. Set it
            to False where no check knows that, and let attempts that are not surely
            wrong succeed: a judge (``--judge``) ranks them.
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
        """Return a scenario of tools and a file of tasks with their expected calls.

        Args:
            tools: Functions with types and docstrings, pairs of a ``ToolSpec`` and a
                callable, or ``module:name`` of such a list. To train, other processes
                must be able to import them. None are needed where each line of the
                file has ``tools``.
            tasks: A JSON Lines file; see docs/your_tasks.md.
            check: ``check(task, calls, state)``, which scores instead of the expected
                calls: a bool, or a number from 0 to 1, where 1 is a success.
            name: Of the scenario; the file's by default.
            answers: ``recorded``, ``stub`` or ``live``: who answers the calls.
            allow: Tools that may be called with ``live``; no other one ever is.

        Raises:
            UsageError: The file, a line of it, or an argument cannot be used.
            ScenarioError: A tool has no docstring or types.
        """
        # By name: the class that it makes is a Scenario, and imports this module.
        make = resolve_name("agentgym.scenarios.tool_tasks.scenario:from_tools")
        made: Scenario = make(
            tools, tasks=tasks, check=check, name=name, answers=answers, allow=allow
        )
        return made

    @abstractmethod
    def system_prompt(self) -> str:
        """Return the agent's system prompt: its role and the rules it must keep."""

    @abstractmethod
    def tools(self) -> list[ToolSpec]:
        """Return the tools that every episode offers, in a fixed order.

        Return ``[]`` if each task has tools of its own: agents are then offered those
        of its environment, :meth:`Environment.tools`.
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
            seed: Of the tasks.
            count: Tasks of the main set; others may be smaller.
        """
        return {"held-out": self.tasks(Split.TEST, seed, count)}

    @abstractmethod
    def create_environment(self, task: Task) -> Environment:
        """Return a fresh environment in the task's initial state."""

    @abstractmethod
    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score a finished episode from the environment's state.

        May run code (hidden tests), so it is called in a worker, before
        ``environment.close()``. The agent's own claims must not count.

        Raises:
            Exception: Any; the rollout is then retried or dropped, never scored 0.
        """

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return the calls of the task's shortest plan, in order; optional.

        With it, an evaluation reports which tool was called instead of which, and
        which arguments were wrong, and ``agentgym scenarios check`` plays it: it
        must succeed. It counts for no reward.

        Returns:
            None, the default, if that is not known.
        """
        return None

    def judge_changes(self, task: Task, changes: Mapping[str, str]) -> Reward | None:
        """Return the reward of a task's project after these changes; optional.

        For scenarios that pay for code. ``agentgym scenarios check`` asks for the
        rewards of changes that must earn nothing: further tests, tidy code that does
        nothing.

        Args:
            task: The task.
            changes: Files that the agent would have written: relative path to text.

        Returns:
            None, the default, if no code is paid for.
        """
        return None

    def vocabulary(self, split: Split) -> set[str]:
        """Return the words and phrases that only tasks of ``split`` may use.

        ``agentgym scenarios check`` looks for them in the instructions of other
        splits. Empty, the default, declares none.
        """
        return set()

    def broadcast_rewards(self, trajectory: Trajectory) -> list[float]:
        """Give each model call its reward.

        By default every call gets the trajectory's, and in addition the inner rewards
        that are its own (:func:`agentgym.reward`), which others do not get. Only asked
        of trajectories that were scored.

        Returns:
            One reward per model call. Trajectory-level broadcast follows AgentFlow
            (arXiv:2510.05592): each turn is credited with the final outcome.
        """
        reward = trajectory.get_total_reward()
        if reward is None:
            return []
        inner = [sum(call.rewards.values()) for call in trajectory.model_calls]
        shared = reward - sum(inner)
        return [shared + own for own in inner]

    def define_trainable_components(self) -> dict[str, bool]:
        """Return which spans of the policy's own text the loss covers.

        By default ``train_tokens`` decides; override it for any other choice.
        """
        return components_of(self.train_tokens)

    def rehearsal(self) -> "Scenario":
        """Return the scenario for agents that call anything: by default itself.

        A scenario whose tools act on the world returns one whose tools do not. Agents
        without a model, the tripwires included, play in it.
        """
        return self

    def live_tools(self) -> frozenset[str]:
        """Return the names of the tools that really run, as their owner allowed."""
        return frozenset()

    def success_criteria(self) -> dict[str, float]:
        """Return the shares on validation tasks at which training ends early.

        ``tool_reliability`` and ``success_rate`` are lowest shares, 0..1;
        ``cost_reduction`` is reported against the baseline, never waited for. Success
        must be among them: an agent that makes one harmless call and gives up is
        perfectly reliable.
        """
        return {
            "tool_reliability": 0.95,
            "success_rate": 0.90,
            "cost_reduction": 0.30,
        }

    @property
    def sandbox(self) -> "LazySandbox":
        """Where code that an agent wrote runs; opened when some first does."""
        from agentgym.sandbox import LazySandbox

        made = LazySandbox(self.sandbox_config)
        sandbox: LazySandbox = vars(self).setdefault("_sandbox", made)
        return sandbox

    def sandbox_config(self) -> "SandboxConfig":
        """Return how :attr:`sandbox` is opened, e.g. with which packages."""
        from agentgym.sandbox import SandboxConfig

        return SandboxConfig(unsafe_local_exec=self.unsafe_local_exec)

    def close(self) -> None:
        """Release the sandbox, which outlives episodes. Called once, at the end."""
        if sandbox := vars(self).get("_sandbox"):
            sandbox.close()

    def notes(self) -> list[str]:
        """Return notes on the tasks for users who train on it, in sentences.

        A plan shows them. The default is none.
        """
        return []

    def card(self) -> dict[str, Any]:
        """Return the card that ``agentgym scenarios show`` prints."""
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
