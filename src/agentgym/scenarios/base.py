"""Base classes of a scenario (tasks, tools, a reward) and of its environment."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentgym.core.components import TrainTokens, components_of
from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolSpec, bound_tools
from agentgym.core.trajectory import MOST_REWARD, Reward, Trajectory
from agentgym.errors import ScenarioError

if TYPE_CHECKING:
    from agentgym.sandbox import Sandbox, SandboxConfig


class ReportedReward(BaseModel):
    """A reward that a program or a check command reports, from 0 to 1.

    If ``success`` is None, a reward of 1 is a success. Other keys are ignored.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    reward: float = Field(ge=0, le=1)
    success: bool | None = None

    def to_reward(self) -> Reward:
        """Convert the report to the reward of an episode."""
        is_solved = self.reward >= 1 if self.success is None else self.success
        return Reward(self.reward, is_solved, {"reported": self.reward})


class Environment(ABC):
    """The state of one episode, on which its tools act.

    The tools are the methods marked with ``@tool``. A tool returns the text that the
    agent sees. It raises ``ToolError`` to refuse a call, and ``RuleViolation`` if a
    rule of the scenario forbids the call.

    Attributes:
        needs_answer: Whether an episode fails if an agent that runs as a program
            (``--command``) prints no answer. Set it to False if the reward does not
            read the answer.
        waits: Whether :meth:`user_reply` takes long, e.g. asks a model; it then runs in
            a thread.
        posted: The reward that such a program posted to ``AGENTGYM_REWARD_URL``; None
            if it posted none.
    """

    needs_answer: bool = True
    waits: bool = False
    posted: ReportedReward | None = None

    def folder(self) -> Path | None:
        """Return the folder with the task's files.

        An agent that runs as a program is started in this folder.

        Returns:
            The folder; None (the default) if the task has no files. A program is then
            started in an empty folder.
        """
        return None

    def at_close(self, end: Callable[[], None]) -> None:
        """Register a function that :meth:`close` must call before anything else.

        The function ends processes that still run in :meth:`folder`. Only environments
        with a folder need to override this method.
        """

    def tools(self) -> list[Tool]:
        """Return the tools of this episode; their calls change this environment."""
        return bound_tools(self)

    def late_tool(self, name: str) -> Tool | None:
        """Return a tool that answers calls of an agent's own tool.

        Called once for each tool of the agent that is not one of :meth:`tools`.

        Returns:
            The tool; None (the default) if the agent's own code runs it.
        """
        return None

    def altered(self, tool: Tool) -> Tool:
        """Return a tool as the episode has it, e.g. one that fails now and then."""
        return tool

    def user_reply(self, message: str) -> str | None:
        """Return the user's reply to an answer of the agent.

        Called each time the agent answers without a tool call. Return None at some
        point, so that the conversation ends. ``Scenario.max_turns`` limits the model
        calls of each agent over the whole conversation.

        Args:
            message: The agent's answer, maybe empty.

        Returns:
            The user's next message; None (the default) ends the conversation.
        """
        return None

    def changed_files(self) -> dict[str, str | None]:
        """Return the text files that the agent changed, by path; by default none.

        A deleted file has the value None. The trajectory stores the result.
        """
        return {}

    def end_state(self) -> dict[str, Any]:
        """Return the final state as JSON values for people to read; by default empty.

        The trajectory stores the state, and `agentgym view` shows it. For files use
        :meth:`changed_files` instead.
        """
        return {}

    def close(self) -> None:
        """Release the episode's resources. Called exactly once, also after errors."""


def own_environment[E: Environment](kind: type[E], environment: Environment) -> E:
    """Check that an environment is an instance of the class ``kind``, and return it."""
    if not isinstance(environment, kind):
        raise ScenarioError(f"{environment!r} is not an environment of this scenario.")
    return environment


class Scenario(ABC):
    """Base class of a scenario: its tasks, tools, reward and success criteria.

    Attributes:
        name: The scenario's name on the command line.
        description: One line for lists.
        difficulty: ``beginner``, ``intermediate`` or ``advanced``.
        estimated_time: Text for people, e.g. ``"about 5 minutes on 2 cores"``.
        reward_range: Lowest and highest value of ``calculate_reward``.
        max_turns: Maximum number of model calls of each agent in an episode, over all
            messages of the user.
        splits: Splits that have tasks. Add ``Split.OUT_OF_VOCABULARY`` if there are
            test tasks with words that no other split uses.
        options: Names of the options that users may write after the scenario's name,
            such as ``data`` in ``bfcl?data=wheel.whl``. The class gets each option as a
            keyword argument, a str.
        agents: The scenario's own agent for each framework, as ``module:name``. It is
            used if the user names no agent; a framework without an entry is then an
            error. Empty (the default): the framework's default agent with the
            scenario's prompt and tools is used.
        extras: Optional dependencies (pip extras) of agentgym that the scenario needs,
            e.g. ``code-quality``. Remote machines install them too.
        train_tokens: The tokens that the model learns from: ``calls``,
            ``calls+reasoning`` or ``all``. Choose ``all`` if the reward reads the text
            of the answer. The setting of the same name overrides it.
        judges_work: Whether the reward depends on the result of a program's work, and
            not on its tool calls. The program's tools may then be unknown.
        has_check: Whether ``Reward.success`` means that an attempt is right. Set it to
            False if nothing can check that, and return success for every attempt that
            is not clearly wrong. A judge model (``--judge``) then ranks the attempts.
        has_late_tools: Whether the agent's own tools belong to the scenario, too.
        unsafe_local_exec: Whether model-written code may run without a sandbox. The
            runner sets it if the user allowed that.
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
    has_late_tools: bool = False
    unsafe_local_exec: bool = False

    @classmethod
    def data_folder(cls) -> Path | None:
        """Return the folder into which :meth:`fetch_data` downloads; None for none."""
        return None

    @classmethod
    def fetch_data(cls) -> str:
        """Download the scenario's data, for ``agentgym scenarios fetch NAME``.

        Returns:
            A text for people: the name, source, size and license of the data.

        Raises:
            ScenarioError: The scenario has a :meth:`data_folder` but not this method.
        """
        raise ScenarioError(f"{cls.__name__} has a data_folder(); write fetch_data().")

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
                processes must be able to import these objects. Not needed if each line
                of the file has ``tools``.
            tasks: A JSON Lines file; see docs/your_tasks.md.
            check: A function ``check(task, calls, state)`` that scores an episode,
                instead of a comparison with the expected calls. It returns a bool, or a
                number from 0 to 1, where 1 is a success.
            name: Name of the scenario; by default the name of the file.
            answers: How tool calls are answered: ``recorded`` (recorded answers),
                ``stub`` (made-up answers) or ``live`` (the tools in ``allow`` run).
            allow: Names of the tools that really run with ``live``; other tools never
                run.

        Raises:
            UsageError: The file, a line of it, or an argument cannot be used.
            ScenarioError: A tool has no docstring or types.
        """
        # Imported by name, since ToolScenario imports this module.
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

        Return ``[]`` if each task has its own tools: agents then get
        :meth:`Environment.tools`.
        """

    @abstractmethod
    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return ``count`` tasks of ``split``, from each family (kind of task) in turn.

        There may be fewer tasks if the split does not have enough. The same arguments
        give the same tasks on every machine, and no task, phrase or entity of one split
        occurs in another.
        """

    def held_out(self, seed: int, count: int) -> dict[str, list[Task]]:
        """Return the held-out tasks for the evaluations before and after training.

        Args:
            seed: Seed of the tasks.
            count: Number of tasks in the main set; other sets may be smaller.

        Returns:
            The sets of tasks by name, the main set first.
        """
        return {"held-out": self.tasks(Split.TEST, seed, count)}

    def variants(self, tasks: list[Task]) -> dict[str, list[Task]]:
        """Return held-out tasks once more under other conditions, by the set's name."""
        return {}

    @abstractmethod
    def create_environment(self, task: Task) -> Environment:
        """Return a new environment in the task's initial state."""

    @abstractmethod
    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score a finished episode from the environment's state.

        It runs in a worker process, before ``environment.close()``, and may run code
        such as hidden tests. Do not reward the agent's claims about its own work.

        Raises:
            Exception: The episode cannot be scored. It is then repeated or dropped, and
                does not get the reward 0.
        """

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return the tool calls of the task's shortest solution, in order; optional.

        An evaluation compares them with the agent's calls, and reports wrong tools and
        wrong arguments. ``agentgym scenarios check`` makes these calls, and the episode
        must then succeed. Rewards do not depend on this method.

        Returns:
            None (the default) if the calls are not known.
        """
        return None

    def judge_changes(self, task: Task, changes: Mapping[str, str]) -> Reward | None:
        """Return the reward of changes to the code of a task's project; optional.

        Override it if the scenario rewards code. ``agentgym scenarios check`` then
        tries useless changes, such as more tests or tidy code without effect, and
        reports those that earn a reward.

        Args:
            task: The task.
            changes: Text of each file that the agent wrote, by relative path.

        Returns:
            None (the default) if code is not rewarded.
        """
        return None

    def vocabulary(self, split: Split) -> set[str]:
        """Return the words and phrases that only tasks of ``split`` may use.

        ``agentgym scenarios check`` searches the instructions of other splits for these
        words. The default is an empty set.
        """
        return set()

    def broadcast_rewards(self, trajectory: Trajectory) -> list[float]:
        """Return a reward for each model call.

        By default, each call gets the reward of the finished episode, as in AgentFlow
        (arXiv:2510.05592). The rewards that an agent gives to one of its calls with
        :func:`agentgym.reward` count for this call alone. Only called for scored
        trajectories.

        Returns:
            One reward per model call, in order.
        """
        reward = trajectory.get_total_reward()
        if reward is None:
            return []
        inner = [sum(call.rewards.values()) for call in trajectory.model_calls]
        shared = reward - sum(inner)
        return [shared + own for own in inner]

    def define_trainable_components(self) -> dict[str, bool]:
        """Return whether the loss covers each kind of text that the policy writes.

        The kinds are the values of :class:`agentgym.core.components.Component`, e.g.
        tool calls or answers. By default, ``train_tokens`` decides. Override this
        method for another choice.
        """
        return components_of(self.train_tokens)

    def rehearsal(self) -> "Scenario":
        """Return the scenario with tools that are safe to call; by default ``self``.

        Override it if the tools act on the real world, and return a scenario whose
        tools do not. It is used with scripted agents that call arbitrary tools, e.g. by
        ``agentgym scenarios check``.
        """
        return self

    def live_tools(self) -> frozenset[str]:
        """Return the names of the tools that the user allowed to really run."""
        return frozenset()

    def success_criteria(self) -> dict[str, float]:
        """Return the goals at which training ends early, measured on validation tasks.

        ``tool_reliability`` and ``success_rate`` are minimum shares from 0 to 1.
        ``cost_reduction`` is only reported: the share of the cost of prompt and sampled
        tokens that training saves.
        Always include ``success_rate``: an agent that makes one harmless call and gives
        up has a perfect ``tool_reliability``.
        """
        return {"tool_reliability": 0.95, "success_rate": 0.90, "cost_reduction": 0.30}

    @property
    def sandbox(self) -> "Sandbox":
        """The sandbox that runs agents' code; it is started at the first use."""
        from agentgym.sandbox import Sandbox

        made = Sandbox(self.sandbox_config)
        sandbox: Sandbox = vars(self).setdefault("_sandbox", made)
        return sandbox

    def sandbox_config(self) -> "SandboxConfig":
        """Return the configuration of :attr:`sandbox`, e.g. its packages."""
        from agentgym.sandbox import SandboxConfig

        return SandboxConfig(unsafe_local_exec=self.unsafe_local_exec)

    def close(self) -> None:
        """Close the sandbox that all episodes share. Called once, at the end."""
        if sandbox := vars(self).get("_sandbox"):
            sandbox.close()

    def notes(self) -> list[str]:
        """Return sentences about the tasks for users; by default, an empty list.

        The plan that is shown before a run contains them.
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


def score(
    scenario: Scenario, task: Task, environment: Environment, trajectory: Trajectory
) -> Reward:
    """Return the scenario's reward for a finished episode, after a check."""
    reward = scenario.calculate_reward(task, environment, trajectory)
    problem = reward_problem(reward, scenario.reward_range)
    if problem:
        raise ScenarioError(f"calculate_reward of task {task.id} returned {problem}.")
    return reward


def reward_problem(reward: object, reward_range: tuple[float, float]) -> str:
    """Return why a value is not a valid reward; "" if it is valid."""
    if not isinstance(reward, Reward):
        return f"{reward!r}, which is no Reward"
    low, high = reward_range
    shares = {
        "right_tool": reward.right_tool,
        "right_arguments": reward.right_arguments,
    }
    numbers: dict[str, object] = {"value": reward.value}
    numbers |= {name: share for name, share in shares.items() if share is not None}
    numbers |= {f"part {name!r}": part for name, part in reward.parts.items()}
    for name, number in numbers.items():
        if not isinstance(number, int | float) or not math.isfinite(number):
            return f"{number!r} as its {name}, which is not a finite number"
        if abs(number) > MOST_REWARD:
            return f"{number!r} as its {name}, and {MOST_REWARD:g} is the most"
    if not low <= reward.value <= high:
        return f"{reward.value!r}, outside reward_range ({low:g}, {high:g})"
    for name, share in shares.items():
        if share is not None and not 0.0 <= share <= 1.0:
            return f"{share!r} as its {name}, which is not a share from 0 to 1"
    if not isinstance(reward.success, bool):
        return f"{reward.success!r} as its success, which is not a bool"
    return ""
