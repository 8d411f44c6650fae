"""The scenario of a tasks file, for tools that a user already has."""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from agentgym.core.needs import NeededCall, is_own
from agentgym.core.task import Answers, Split, Task, TaskSource
from agentgym.core.tools import Tool, ToolSpec, as_tools
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import NotFoundError, UsageError
from agentgym.programs.program import ProgramCommand
from agentgym.scenarios.base import Environment, Scenario
from agentgym.scenarios.tool_tasks.answers import Answering, ToolEnvironment
from agentgym.scenarios.tool_tasks.judging import POSTED, EpisodeJudge, judge_of
from agentgym.scenarios.tool_tasks.lines import read_settings
from agentgym.scenarios.tool_tasks.reward import (
    LOWEST,
    Check,
    score_calls,
    score_checked,
    without_done,
)
from agentgym.scenarios.tool_tasks.splitting import plain_words, split_lines, unmeasured
from agentgym.scenarios.tool_tasks.task_file import (
    TaskLine,
    answers_path,
    carries_tools,
    read_answers,
    read_task_lines,
)
from agentgym.scenarios.tool_tasks.unseen import AgentTools, learn_from, unseen
from agentgym.scenarios.tool_tasks.user_code import (
    NO_CHECK,
    TOOLS_FROM,
    accept_all,
    importable,
    is_agent,
    load_all_tools,
    load_check,
    unseen_tool,
    usable_check,
)
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_PROMPT = (
    "You help users by calling tools. Call those that the request needs, with the "
    "values that the user gives or that a tool has told you. Then answer briefly."
)
_LEAST_TURNS = 6
_MOST_LISTED = 4
_NO_GOAL = ("instruction", "configurable", "tools")


class ToolScenario(Scenario):
    """A scenario from a tasks file; :meth:`Scenario.from_tools` creates one.

    Args:
        tools: The tools, each with a spec and a function.
        path: The tasks file.
        answers: How tool calls are answered: ``recorded`` (recorded answers), ``stub``
            (made-up answers) or ``live`` (the tools in ``allow`` run).
        allow: Names of the tools that really run if ``answers`` is ``live``.
        check: A function that scores episodes, instead of a comparison with the
            expected calls.
        judge: Scores episodes by the program's work; ``check`` is then not used.
        name: Name of the scenario; by default the name of the file.
        source: Reference with which other processes load the scenario. If they cannot
            load it, the reason as text.

    Raises:
        UsageError: The file, a line of it, or an argument cannot be used.
    """

    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = "beginner"
    estimated_time: ClassVar[str] = "minutes on 2 cores, by how many tasks there are"

    def __init__(
        self,
        tools: Sequence[Tool],
        path: str | os.PathLike[str],
        *,
        answers: Answers = "recorded",
        allow: Sequence[str] = (),
        check: Check | None = None,
        judge: EpisodeJudge | None = None,
        name: str | None = None,
        source: TaskSource | str = "",
    ) -> None:
        specs = {tool.spec.name: tool.spec for tool in tools}
        is_open = isinstance(source, TaskSource) and any(map(is_agent, source.tools))
        if is_open:
            specs = AgentTools(specs)
        self._source = source
        self._specs = specs
        self._check = check
        self._judge = judge
        file = Path(path)
        self._folder = file.absolute().parent
        is_checked = check is not None or judge is not None
        lines = read_task_lines(file, specs, checked=is_checked)
        recorded = read_answers(answers_path(file), specs)
        tools = [*tools, *map(unseen_tool, unseen(specs.values()).values())]
        _check_allowed(answers, allow, specs)
        _require_folders(lines, self._folder)
        self._by_id = {line.id: line for line in lines}
        self._splits, shared = split_lines(lines)
        self._answering = Answering(
            tools=tools,
            mode=answers,
            allow=frozenset(allow),
            recorded=recorded,
            is_open=is_open,
            is_checked=check is not None,
        )
        longest = max(len(line.expect) for line in lines)
        given = read_settings(file)
        vars(self).update(  # other classes have these; here every file has its own
            name=TaskSource(str(path), given_name=name or "").name,
            description=f"{len(lines)} tasks of {file.name}; splits: {shared}.",
            judges_work=judge is not None,
            has_late_tools=is_open,
            has_check=check is not accept_all,
            splits=tuple(split for split in Split if self._splits[split]),
            max_turns=given.max_turns or max(_LEAST_TURNS, 2 * longest + 2),
            train_tokens=given.train_tokens
            or (Scenario.train_tokens if judge is None else "all"),
        )

    @property
    def check(self) -> Check | None:
        """The user's function that scores episodes; None without one."""
        return self._check

    @property
    def reference(self) -> str:
        """The text with which other processes load this scenario."""
        if isinstance(self._source, TaskSource):
            return str(self._source)
        raise UsageError(self._source or "The scenario was made of tools in memory.")

    def rehearsal(self) -> Scenario:
        """Return this scenario with recorded answers instead of real tool calls."""
        if self._answering.mode != "live":
            return self
        made = copy(self)
        made._answering = replace(self._answering, mode="recorded", allow=frozenset())
        return made

    def live_tools(self) -> frozenset[str]:
        """Return the names of the tools that may really run; empty without ``live``."""
        return self._answering.allow  # empty unless they are answered live

    def system_prompt(self) -> str:
        """Return a general system prompt for the default agent."""
        return _PROMPT

    def tools(self) -> list[ToolSpec]:
        """Return the specs of the tools; [] if lines of the file have their own."""
        some_have = any(line.tools for line in self._by_id.values())
        return [] if some_have else list(self._specs.values())

    def notes(self) -> list[str]:
        """Return warnings about the tasks file, for its author."""
        notes: list[str] = []
        if families := unmeasured(self._splits):
            notes.append(
                f"no held-out task is of {_listed(families)}: what is learned of these "
                "is not measured. Write more of them, or name a `split` in their lines"
            )
        asked: dict[str, list[TaskLine]] = {}
        for line in self._by_id.values():
            asked.setdefault(plain_words(line.instruction), []).append(line)
        again = [lines for lines in asked.values() if len(lines) > 1]
        if again:
            where = [" and ".join(str(x.number) for x in lines) for lines in again]
            notes.append(
                f"{sum(map(len, again))} lines ask what another one asks, e.g. lines "
                f"{_listed(where)}: they weigh more than others"
            )
        return notes

    def lines(self, split: Split) -> list[TaskLine]:
        """Return the lines of the tasks file that belong to a split."""
        return list(self._splits[split])

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return up to ``count`` tasks, from each family (kind of task) in turn."""
        families: dict[str, list[TaskLine]] = {}
        for line in self._splits[split]:
            families.setdefault(line.family, []).append(line)
        rng = Random(f"{split}/{seed}")
        queues = [rng.sample(lines, len(lines)) for lines in families.values()]
        rng.shuffle(queues)
        order = [
            queue[turn]
            for turn in range(max(map(len, queues), default=0))
            for queue in queues
            if turn < len(queue)
        ]
        return [_task(line, split) for line in order[:count]]

    def create_environment(self, task: Task) -> Environment:
        """Return an environment for the task, with its tools and files."""
        return ToolEnvironment(
            self._line(task),
            self._answering,
            self._folder,
            needs_answer=self._judge is None,
        )

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score by the judge, ``check``, the reward for code, or the expected calls."""
        line, (made, by_code) = self._line(task), trajectory.calls_by_maker()
        specs = line.tools or self._specs
        learn_from(specs, trajectory)
        if self._judge is not None:
            if any(call.name in line.forbid for call in made):
                return Reward(LOWEST, False, {"forbidden": LOWEST})
            return self._judge(task, environment, trajectory)
        if self._check is not None:
            made = trajectory.get_tool_calls()
        calls = [call for call in made if not is_own(call, specs)]
        if self._check is not None:
            assert isinstance(environment, ToolEnvironment)
            state = {
                "missed": environment.missed,
                "answer": trajectory.answer,
                "agent": trajectory.end_state,
            }
            return score_checked(self._check, line, task, calls, state)
        if line.code is not None:
            return line.code.score_calls(calls, line.forbid, self.sandbox)
        return score_calls(without_done(line, by_code, specs), calls, specs)

    def judge_changes(self, task: Task, changes: Mapping[str, str]) -> Reward | None:
        """Return the reward of changed code; None if the task does not reward code."""
        code = self._line(task).code
        if code is None or (self._check, self._judge) != (None, None):
            return None
        return code.score_changes(changes, self.sandbox)

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return the expected calls of a task; None if it has no expected calls."""
        return list(self._line(task).expect) or None

    def _line(self, task: Task) -> TaskLine:
        if task.id not in self._by_id:
            raise NotFoundError(f"task of {self.name}", task.id, self._by_id)
        return self._by_id[task.id]


def from_tools(
    tools: Any,
    *,
    tasks: str | os.PathLike[str],
    check: Callable[..., Any] | str | None,
    name: str | None,
    answers: str,
    allow: Sequence[str],
) -> ToolScenario:
    """Create a scenario from a tasks file; see `Scenario.from_tools`."""
    path = os.path.abspath(os.path.expanduser(os.fspath(tasks)))
    chosen = TaskSource.answering(answers)
    source: TaskSource | str
    try:
        places, folder = importable(tools)
        named = None if check is None else importable(check)[0][0]
        source = TaskSource(
            path, tuple(places), chosen, tuple(allow), named, folder, name or ""
        )
    except UsageError as error:
        source = str(error)
    if isinstance(tools, str):
        made = load_all_tools([tools], os.getcwd())
    else:
        made = as_tools(tools, "tools") if tools else []
    scorer = load_check(check, "") if isinstance(check, str) else usable_check(check)
    return ToolScenario(
        made,
        path,
        answers=chosen,
        allow=allow,
        check=scorer,
        name=name,
        source=source,
    )


def tasks_reference(
    tasks: str | os.PathLike[str],
    check: Callable[..., Any] | str | None = None,
    check_command: str | None = None,
) -> str:
    """Return the reference to a tasks file for an agent that has its own tools."""
    if not isinstance(tasks, str | os.PathLike):
        raise UsageError(
            f"tasks is a {type(tasks).__name__}, not the path of a tasks file. Write "
            "one task a line to a file, or give Scenario.from_tools(tools, tasks=...)."
        )
    path = os.path.abspath(os.path.expanduser(os.fspath(tasks)))
    if check in (None, POSTED, NO_CHECK):
        found = TaskSource(path, check=check, check_command=check_command)
        return absolute_source(str(found)) if check or check_command else path
    [scorer], folder = importable(check)
    return str(TaskSource(path, check=scorer, folder=folder))


def with_own_tools(reference: str, agent: str) -> str:
    """Add an agent's tools to the reference of a tasks file, if it needs tools."""
    source = TaskSource.parse(reference)
    is_judged = source.check_command is not None or source.check == POSTED
    if source.tools or is_judged or carries_tools(Path(source.path)):
        return reference
    return str(replace(source, tools=(f"@{agent}",)))


def load_source(reference: str) -> ToolScenario:
    """Create the scenario from a reference with absolute paths."""
    source = TaskSource.parse(reference)
    judge = judge_of(source.check, source.check_command)
    knows_tools = bool(source.tools) or judge is not None
    if not knows_tools and not carries_tools(Path(source.path)):
        raise UsageError(
            f"{source.path} is a tasks file; whose tools does it call? Say so with "
            f"{TOOLS_FROM} module:TOOLS, a list of functions, with --agent "
            "module:name, or with `tools` in each line."
        )
    check = None
    if source.check is not None and judge is None:
        check = load_check(source.check, source.folder)
    return ToolScenario(
        load_all_tools(source.tools, source.folder) if source.tools else [],
        source.path,
        answers=source.answers,
        allow=source.allow,
        check=check,
        judge=judge,
        name=source.given_name,
        source=source,
    )


def absolute_source(reference: str) -> str:
    """Return the reference of a tasks file with absolute paths and import folder."""
    source = TaskSource.parse(reference)
    path = os.path.abspath(os.path.expanduser(source.path))
    command = source.check_command
    if command is not None:
        command = str(ProgramCommand.parse(command, option="--check-command").located())
    folder = source.folder or os.getcwd()
    return str(replace(source, path=path, folder=folder, check_command=command))


def _require_folders(lines: Sequence[TaskLine], base: Path) -> None:
    """Check that the folders in the key ``files`` of the lines exist."""
    for line in lines:
        if isinstance(line.files, str) and not (base / line.files).is_dir():
            raise UsageError(
                f"line {line.number}: `files` names the folder {line.files!r}, and "
                f"{base / line.files} does not exist."
            )


def _check_allowed(
    answers: Answers, allow: Sequence[str], specs: dict[str, ToolSpec]
) -> None:
    for name in allow:
        if name not in specs and not isinstance(specs, AgentTools):
            raise NotFoundError("tool", name, specs)
    if allow and answers != "live":
        raise UsageError(
            f"Tools are allowed ({', '.join(allow)}) but would not be called: answers "
            f"are {answers!r}. Choose live (--tools live), or allow none."
        )
    if answers == "live" and not allow:
        names = f", of {', '.join(specs)}" if specs else ""
        raise UsageError(
            "Live tools really run, with whatever arguments an untrained model writes. "
            f"Allow those for which that does no harm: --allow-tool NAME{names}."
        )
    warn_of_calls(allow)


def warn_of_calls(names: Sequence[str]) -> None:
    """Log a warning with the names of tools that will really be called."""
    if names:
        logger.warning(
            "Warning: %s will really be called, again and again, with whatever "
            "arguments the model writes.",
            ", ".join(names),
        )


def _task(line: TaskLine, split: Split) -> Task:
    return Task(
        id=line.id,
        split=split,
        seed=line.number,
        family=line.family,
        level=1 if len(line.expect) < 2 else 2,
        instruction=line.instruction,
        goal={key: v for key, v in line.source.items() if key not in _NO_GOAL},
        configurable=line.configurable,
    )


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MOST_LISTED} more" * (len(words) > _MOST_LISTED)
    return ", ".join(words[:_MOST_LISTED]) + more
