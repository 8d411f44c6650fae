"""Score an agent that runs as a program, without looking at its tool calls.

A check command scores the program's work, or the program posts its reward.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from shutil import copytree

from agentgym.core.files import parse_json
from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import ProgramError, RewardError, UsageError, unreadable
from agentgym.programs.process import ProgramEnd, ProgramRun, new_folder
from agentgym.programs.program import ProgramCommand, base_variables, write_task
from agentgym.scenarios.base import Environment, ReportedReward

POSTED = "posted"
"""Value of ``check`` if the program posts its reward itself."""
CHECK_TIMEOUT_S = 120.0

_SOLVED, _UNSOLVED = 0, 1
_KIND = "check command"


EpisodeJudge = Callable[[Task, Environment, Trajectory], Reward]
"""A function that scores an episode by the program's work, not its tool calls.

It raises RewardError if it cannot, e.g. since the program posted no reward, and
ProgramError if the check command failed.
"""


class CommandJudge:
    """Scores an episode by a check command, which runs in the episode's folder.

    Its standard input is the agent's answer. Exit code 0 means solved and 1 not solved,
    or its last line is ``{"reward": 0.5}``. Anything else is an error.
    """

    def __init__(self, program: ProgramCommand) -> None:
        self._program = program
        self._of_start: dict[str, Reward] = {}
        self._lock = threading.Lock()

    def __call__(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Run the check command, and return the reward."""
        # Without model calls, the result is always the same: it runs once per task.
        if trajectory.model_calls:
            return self._run(task, environment, trajectory.answer or "")
        with self._lock:
            if task.id not in self._of_start:
                self._of_start[task.id] = self._run(task, environment, "")
            return self._of_start[task.id]

    def _run(self, task: Task, environment: Environment, answer: str) -> Reward:
        folder = environment.folder()
        if folder is None:
            raise RewardError("the task has no folder for a check command")
        apart = new_folder()
        task_file = write_task(
            apart, {"id": task.id, "instruction": task.instruction, **task.goal}
        )
        variables = {
            **base_variables(),
            "AGENTGYM_TASK": str(task_file),
            "AGENTGYM_TASK_JSON": str(apart / "task.json"),
            "AGENTGYM_TASK_ID": task.id,
        }
        words = self._program.arguments(task.instruction, task_file)
        run = ProgramRun(words, folder, variables)
        environment.at_close(run.kill)
        try:
            return self._verdict(run.wait(answer.encode(), CHECK_TIMEOUT_S))
        except ProgramError as error:
            raise ProgramError(_KIND, str(error)) from error

    def _verdict(self, ended: ProgramEnd) -> Reward:
        name = self._program.words[0]
        if ended.exit_code not in (_SOLVED, _UNSOLVED):
            raise ProgramError(
                _KIND, f"{name}: {ended.why}; 0 means solved, and 1 not solved"
            )
        lines = ended.output.strip().splitlines()
        if lines and lines[-1].lstrip().startswith("{"):
            try:
                return ReportedReward.model_validate(parse_json(lines[-1])).to_reward()
            except ValueError as error:
                raise ProgramError(
                    _KIND,
                    f"{name}: its last line, {lines[-1]!r:.120}, is not a reward, as "
                    f'in {{"reward": 0.5}}: {unreadable(error)}',
                ) from None
        is_solved = ended.exit_code == _SOLVED
        return Reward(float(is_solved), is_solved, {"check": float(is_solved)})


def posted_reward(
    task: Task, environment: Environment, trajectory: Trajectory
) -> Reward:
    """Return the reward that the program posted to ``AGENTGYM_REWARD_URL``."""
    if environment.posted is not None:
        return environment.posted.to_reward()
    if not trajectory.model_calls:
        return Reward(0.0, False, {"reported": 0.0})
    raise RewardError(
        "the program posted no reward to the address in AGENTGYM_REWARD_URL"
    )


def judge_of(check: str | None, check_command: str | None) -> EpisodeJudge | None:
    """Return the judge that command-line options select; None if they select none."""
    if check_command is not None:
        if check is not None:
            raise UsageError(
                f"Who judges? Give --check {check} or --check-command, not both."
            )
        program = ProgramCommand.parse(
            check_command, option="--check-command"
        ).located()
        program.require(option="--check-command")
        if program.tasks is not None:
            raise UsageError(
                f"--check-command {check_command!r}: {{tasks:{program.tasks}}} is for "
                "--command; a check runs once an attempt."
            )
        return CommandJudge(program)
    return posted_reward if check == POSTED else None


def check_files(files: Mapping[str, str]) -> str:
    """Return why files cannot be written to a task's folder; "" if they can."""
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
            return f"{name!r} is not a path below the task's folder"
    return ""


def folder_with(files: Mapping[str, str] | str | None, base: Path) -> Path:
    """Create a temporary folder with a task's files, and return its path."""
    folder = new_folder()
    if isinstance(files, str):
        copytree(base / files, folder, symlinks=True, dirs_exist_ok=True)
        return folder
    for name, text in (files or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
