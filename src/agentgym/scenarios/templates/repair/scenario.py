"""Repair: find a wrong function, fix it, and run the tests."""

import tomllib
from pathlib import Path
from random import Random
from typing import ClassVar, Literal

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory, tool
from agentgym.core.needs import NeededCall
from agentgym.core.tools import ToolOutcome, ToolSpec, tool_specs
from agentgym.errors import RuleViolation
from agentgym.sandbox import RunTests, Sandbox, Workspace, gives

_TEXT = Path(__file__).with_name("faults.toml").read_text(encoding="utf-8")
FAULTS = {Split(name): faults for name, faults in tomllib.loads(_TEXT).items()}
PHRASES = ["{name} is wrong, repair {path}", "the test of {name} fails: mend {path}"]
TIMEOUT_S = 5.0


class RepairProject(Environment):
    """One episode: a few files in memory, and a sandbox to run them."""

    def __init__(self, files: dict[str, str], sandbox: Sandbox) -> None:
        self.workspace = Workspace(files)  # It copies: the task must not change.
        self._sandbox = sandbox

    @tool
    def read_file(self, path: str) -> str:
        """Read a file."""
        return self.workspace.files[self.workspace.file(path)]

    @tool
    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a text, which must occur once, in a file."""
        name = self.workspace.file(path)
        if name.startswith("tests/"):
            raise RuleViolation("tests may not be changed.")
        self.workspace.replace(name, old, new)
        return f"Edited {name}."

    @tool
    async def run_tests(self) -> str:
        """Run the tests."""
        files = dict(self.workspace.files)
        found = await self._sandbox.run(files, RunTests(), timeout_s=TIMEOUT_S)
        result = found.checked()  # An error here is not the agent's fault.
        failed = [test for test in result.tests or () if test.outcome != "passed"]
        return failed[0].message[:300] if failed else f"{result.passed} passed."

    def changed_files(self) -> dict[str, str | None]:
        """Return the files that the agent edited, for the trajectory."""
        return self.workspace.changed()


class RepairScenario(Scenario):
    """A policy learns to read, edit and test, and to do nothing else."""

    name: ClassVar[str] = "repair"
    description: ClassVar[str] = "Repair a function whose test fails."
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = "advanced"
    estimated_time: ClassVar[str] = "depends on the model: it has to know some Python"
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    splits: ClassVar[tuple[Split, ...]] = tuple(Split)

    def system_prompt(self) -> str:
        """Return the role and the rules."""
        return "You repair Python code. Rule: never change a file under tests/."

    def tools(self) -> list[ToolSpec]:
        """Return the tools of a project."""
        return tool_specs(RepairProject)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return tasks; each depends only on its number."""
        return [self._task(split, seed, number) for number in range(count)]

    def _task(self, split: Split, seed: int, number: int) -> Task:
        rng = Random(f"{split.value}/{seed}/{number}")
        signature, right, wrong, shown, hidden = rng.choice(FAULTS[split])
        name = signature.partition("(")[0]
        path = f"{name}.py"
        test = f"from {name} import {name}\n\n\ndef test_{name}():\n"
        return Task(
            id=f"{split.value}/{seed}/{number}",
            split=split,
            seed=seed,
            family="repair",
            level=1,
            instruction=rng.choice(PHRASES).format(name=name, path=path),
            initial_state={
                path: f"def {signature}:\n    return {wrong}\n",
                f"tests/test_{name}.py": f"{test}    assert {shown}\n",
            },
            goal={
                "path": path,
                "old": f"return {wrong}",
                "new": f"return {right}",
                "hidden": hidden,
            },
        )

    def create_environment(self, task: Task) -> RepairProject:
        """Return the project in the task's initial state."""
        return RepairProject(task.initial_state, self.sandbox)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score the values that the code gives; the code's own claims do not count.

        The visible test only informs the agent: code can make a test in its own process
        pass. The values judged by ``gives`` leave the sandbox as text, and the expected
        values never enter it.
        """
        assert isinstance(environment, RepairProject)
        path, files = task.goal["path"], environment.workspace.files
        calls = trajectory.get_tool_calls()
        kept = all(call.outcome is not ToolOutcome.RULE_BROKEN for call in calls)
        brief = len(calls) <= 6  # Otherwise calling everything would pay.
        if files[path] == task.initial_state[path] or not kept or not brief:
            return Reward(0.0, False, right_tool=0.0, right_arguments=0.0)
        code = {path: files[path]}
        hidden = {path: task.goal["hidden"]}
        verdict = gives(self.sandbox, code, hidden, timeout_s=TIMEOUT_S)
        right = bool(verdict)
        value = 1.0 if right else 0.2 * verdict.share
        return Reward(value, right, right_tool=1.0, right_arguments=float(right))

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls that solve a task; any working edit is accepted."""
        path, old, new = (task.goal[part] for part in ("path", "old", "new"))
        edit = {"path": path, "old": old, "new": new}
        judged = frozenset({"old", "new"})
        return [
            NeededCall("read_file", {"path": path}),
            NeededCall("edit_file", edit, by_outcome=judged),
            NeededCall("run_tests", {}),
        ]

    def vocabulary(self, split: Split) -> set[str]:
        """Return the functions of a split."""
        return {signature.partition("(")[0] for signature, *_ in FAULTS[split]}
