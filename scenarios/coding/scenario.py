"""CodingScenario: tasks to read, edit, test and repair small Python projects."""

from collections.abc import Sequence
from functools import partial

from agentgym.core.task import Task
from agentgym.core.tools import tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.packs.kit.rewards import grade, in_order, next_tool, not_made
from agentgym.packs.kit.tasks import Step, plan_of
from agentgym.sandbox import Sandbox
from agentgym.scenarios.base import Environment, own_environment
from agentgym.scenarios.plan_reward import (
    DAMAGE,
    PROGRESS,
    SPARE_CALLS,
    Attempts,
    ReceivedCall,
    is_guessed,
    melted,
)

from . import checks, execution
from .environment import CodingEnvironment, ProjectScenario, search
from .execution import is_test_path
from .families import FAMILIES

ERROR = -0.04
REPEAT = -0.03
VIOLATION = -0.2
UNTESTED = -0.05
_MOST_COUNTED = 2
_MOST_ERRORS = 6

_TOOLS = [spec.name for spec in tool_specs(CodingEnvironment)]


def score(
    task: Task,
    environment: CodingEnvironment,
    trajectory: Trajectory,
    sandbox: Sandbox,
) -> Reward:
    """Score a finished episode.

    A success earns 1 minus a little for needless calls, at least 0.5. It is not a
    success if the agent broke a rule, did not test an edit, or reached the goal by
    trying everything (:func:`is_guessed`).

    Without success, the calls of the task's shortest solution share 0.45 equally: each
    of them that the agent made, in order, earns its share. For the first that it did
    not make, a call of the right tool earns 0.4 of a share. That is more than an error
    costs, so trying the next call never earns less than stopping. Many needless calls
    reduce these earnings to 0, so calling everything does not pay.
    """
    plan = plan_of(task.goal)
    needed = [step.tool for step in plan]
    attempts = Attempts.of(environment.books, trajectory)
    repaired = _changed_as_asked(task, environment, sandbox)
    matches = partial(_matches, task=task, repaired=repaired)
    made = in_order(plan, attempts.done, matches)
    spare = SPARE_CALLS[task.level]
    success = (
        repaired
        and (made == len(plan) or not task.goal["ordered"])
        and not environment.untested
        and not attempts.violations
        and not is_guessed(attempts, needed, _TOOLS, spare)
    )
    credit = float(made)
    if made < len(plan):
        credit += next_tool(attempts, needed[made], needed[:made].count(needed[made]))
    over = len(attempts.tools) - made - spare
    parts = {
        "progress": PROGRESS / len(plan) * credit * melted(over),
        "errors": ERROR * _charged(attempts),
        "repeats": REPEAT * min(_repeated(attempts.done), _MOST_COUNTED),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
        "untested": UNTESTED if environment.untested else 0.0,
        "damage": DAMAGE if _damaged(task, environment) else 0.0,
    }
    right = len(plan) - len(not_made(plan, attempts.done, matches))
    return grade(
        attempts,
        needed,
        parts,
        success=success,
        arguments=right / len(plan),
        error=ERROR,
        spare=spare,
    )


def _charged(attempts: Attempts) -> int:
    """Return the number of errors that reduce the reward of a failed episode."""
    # All first failures together count as one error, so that trying a tool costs
    # little.
    again = len(attempts.failed) - len(set(attempts.failed))
    return min(bool(attempts.failed) + again, _MOST_ERRORS)


def _repeated(done: Sequence[ReceivedCall]) -> int:
    """Count calls that repeat an earlier call without an edit between them."""
    count = 0
    seen: list[ReceivedCall] = []
    for call in done:
        if call.tool in ("edit_file", "format_file"):
            seen.clear()
        count += call in seen
        seen.append(call)
    return count


def _matches(step: Step, call: ReceivedCall, *, task: Task, repaired: bool) -> bool:
    """Return whether a call is this step; an edit only if it is ``repaired``."""
    if step.tool != call.tool:
        return False
    if step.tool == "edit_file":
        return repaired and call.args["path"] == step.args["path"]
    for args in (step.args, *step.others):
        if args == call.args:
            return True
        if step.tool == "search_code":
            files = task.initial_state["files"]
            found = search(files, call.args["query"])
            if found == search(files, args["query"]):
                return True
    return False


def _changed_as_asked(
    task: Task, environment: CodingEnvironment, sandbox: Sandbox
) -> bool:
    """Return whether each file that had to change is right, and no other changed."""
    goal, files = task.goal, environment.workspace.files
    start: dict[str, str] = task.initial_state["files"]
    if goal["hidden"]:
        return _repaired(task, files, sandbox)
    for path, text in start.items():
        if path in goal["formatted"]:
            right = files[path] == checks.formatted(text)
        elif path in goal["expected"]:
            right = _same_meaning(files[path], goal["expected"][path])
        else:
            right = files[path] == text
        if not right:
            return False
    return True


def _repaired(task: Task, files: dict[str, str], sandbox: Sandbox) -> bool:
    """Return whether the code gives the right values, and other files are unchanged."""
    start: dict[str, str] = task.initial_state["files"]
    expected: dict[str, str] = task.goal["expected"]
    if files == start or not all(
        files[path] == text
        if is_test_path(path)
        else path in expected or _same_meaning(files[path], text)
        for path, text in start.items()
    ):
        return False
    if all(_same_meaning(files[path], text) for path, text in expected.items()):
        return True  # The known repair need not be executed.
    sources = {p: text for p, text in files.items() if not is_test_path(p)}
    return execution.repaired(sandbox, sources, task.goal["hidden"])


def _same_meaning(text: str, other: str) -> bool:
    if text == other:
        return True
    meaning = checks.meaning(text)
    return meaning is not None and meaning == checks.meaning(other)


def _damaged(task: Task, environment: CodingEnvironment) -> bool:
    """Return whether the agent changed a file that the task does not ask to change."""
    goal, files = task.goal, environment.workspace.files
    start: dict[str, str] = task.initial_state["files"]
    return any(
        files[path] != text
        for path, text in start.items()
        if path not in goal["expected"] and path not in goal["formatted"]
    )


ROLE = (
    "You are a coding agent in a small Python project. Use the tools, then answer in a "
    "few words. The tests of module m are in tests/test_m.py."
)
RULES = (
    "Rules: read a file before you edit or run it; run the tests after you edit; never "
    "change a file under tests/: if asked to, only read it."
)
SYSTEM_PROMPT = f"{ROLE} {RULES}"


class CodingScenario(ProjectScenario):
    """Tasks to find, read, edit, test and repair code in generated Python packages."""

    name = "coding"
    description = "Find, read, edit, test and repair code in a small Python package."
    difficulty = "beginner"
    estimated_time = "10 to 20 minutes on 2 cores"
    max_turns = 9
    prompt = SYSTEM_PROMPT
    environment = CodingEnvironment
    families = FAMILIES
    by_outcome = frozenset({"old", "new", "query"})

    def create_environment(self, task: Task) -> CodingEnvironment:
        """Return a new environment with the task's project."""
        return CodingEnvironment(task.initial_state["files"], self.sandbox)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode by its final files and its calls; see :func:`score`."""
        own = own_environment(CodingEnvironment, environment)
        return score(task, own, trajectory, self.sandbox)

    def success_criteria(self) -> dict[str, float]:
        """Return the goals at which training ends early.

        They are for validation tasks of levels 1 and 2.
        """
        return {"tool_reliability": 0.95, "success_rate": 0.95, "cost_reduction": 0.30}
