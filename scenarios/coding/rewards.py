"""Score an episode: by its outcome, or without success by its progress."""

from collections.abc import Sequence

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.scenarios.books import ReceivedCall
from agentgym.scenarios.plan_reward import (
    DAMAGE,
    NEXT_TOOL,
    NO_CALL,
    PROGRESS,
    SPARE_CALLS,
    Attempts,
    is_guessed,
    melted,
    success_parts,
    tools_called,
)

from . import checks, execution
from .drafts import Step
from .environment import CodingEnvironment
from .execution import AnySandbox, is_test_path
from .reading import search

ERROR = -0.04
REPEAT = -0.03
VIOLATION = -0.2
UNTESTED = -0.05
_MOST_COUNTED = 2
_MOST_ERRORS = 6


def score(
    task: Task,
    environment: CodingEnvironment,
    trajectory: Trajectory,
    sandbox: AnySandbox,
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
    plan = [Step.from_json(step) for step in task.goal["plan"]]
    attempts = Attempts.of(environment.books, trajectory)
    repaired = _changed_as_asked(task, environment, sandbox)
    made = _progress(plan, attempts.done, task, repaired)
    spare = SPARE_CALLS[task.level]
    tools = [tool.spec.name for tool in environment.tools()]
    success = (
        repaired
        and (made == len(plan) or not task.goal["ordered"])
        and not environment.books.untested
        and not attempts.violations
        and not is_guessed(attempts, [step.tool for step in plan], tools, spare)
    )
    right_tool, right_arguments = _shares(plan, attempts, task, repaired)
    if success:
        parts = success_parts(attempts, len(plan), ERROR, spare)
        return Reward(sum(parts.values()), True, parts, 1.0, 1.0)
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
    share = PROGRESS / len(plan)
    credit = share * (made + _next_tool(plan, made, attempts))
    parts = {
        "progress": credit * melted(len(attempts.tools) - made - spare),
        "errors": ERROR * _charged(attempts),
        "repeats": REPEAT * min(_repeated(attempts.done), _MOST_COUNTED),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
        "untested": UNTESTED if environment.books.untested else 0.0,
        "damage": DAMAGE if _damaged(task, environment) else 0.0,
    }
    value = max(-1.0, sum(parts.values()))
    return Reward(value, False, parts, right_tool, right_arguments)


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


def _matches(step: Step, call: ReceivedCall, task: Task, repaired: bool) -> bool:
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


def _progress(
    plan: Sequence[Step], done: Sequence[ReceivedCall], task: Task, repaired: bool
) -> int:
    """Return how many steps of the shortest solution the agent made, in order."""
    made = 0
    for call in done:
        if made < len(plan) and _matches(plan[made], call, task, repaired):
            made += 1
    return made


def _next_tool(plan: Sequence[Step], made: int, attempts: Attempts) -> float:
    """Return ``NEXT_TOOL`` if the first missing step's tool was called, else 0."""
    if made == len(plan):
        return 0.0
    needed = plan[made].tool
    before = sum(step.tool == needed for step in plan[:made])
    return NEXT_TOOL if attempts.tools.count(needed) > before else 0.0


def _shares(
    plan: Sequence[Step], attempts: Attempts, task: Task, repaired: bool
) -> tuple[float, float]:
    """Return two shares from 0 to 1: of steps whose tool was called, of steps made."""
    calls = list(attempts.done)
    right_tool = tools_called((step.tool for step in plan), attempts.tools)
    right_call = 0
    for step in plan:
        for call in calls:
            if _matches(step, call, task, repaired):
                calls.remove(call)
                right_call += 1
                break
    return right_tool / len(plan), right_call / len(plan)


def _changed_as_asked(
    task: Task, environment: CodingEnvironment, sandbox: AnySandbox
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


def _repaired(task: Task, files: dict[str, str], sandbox: AnySandbox) -> bool:
    """Return whether the code gives the right values, and other files are unchanged."""
    start: dict[str, str] = task.initial_state["files"]
    if files == start or _tests_changed(start, files):
        return False
    expected: dict[str, str] = task.goal["expected"]
    if not all(
        path in expected or _same_meaning(files[path], text)
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


def _tests_changed(start: dict[str, str], files: dict[str, str]) -> bool:
    return any(
        files[path] != text for path, text in start.items() if is_test_path(path)
    )


def _damaged(task: Task, environment: CodingEnvironment) -> bool:
    """Return whether the agent changed a file that the task does not ask to change."""
    goal, files = task.goal, environment.workspace.files
    start: dict[str, str] = task.initial_state["files"]
    return any(
        files[path] != text
        for path, text in start.items()
        if path not in goal["expected"] and path not in goal["formatted"]
    )
