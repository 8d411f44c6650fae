"""Score an episode of the team, by its calls or by the code that it wrote."""

from collections.abc import Mapping, Sequence

from agentgym.core.needs import NeededCall
from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.packs.coding.execution import AnySandbox, repaired
from agentgym.plugins.team.coding_team.environment import TeamEnvironment
from agentgym.scenarios.books import ReceivedCall
from agentgym.scenarios.plan_reward import (
    NEXT_TOOL,
    NO_CALL,
    PROGRESS,
    Attempts,
    melted,
    success_parts,
    tools_called,
)
from agentgym.scenarios.rewards.parts import is_test_file

ERROR = -0.04
VIOLATION = -0.1
FALLBACK = -0.05
SPARE_CALLS = 3
"""Number of needless calls that a success may contain."""
CORRECT, FINISHED = 0.7, 0.3
"""If the policy writes the code: rewards for right code, and for finishing then."""
_MOST_COUNTED = 4


def needed(task: Task) -> list[NeededCall]:
    """Return the calls of the task's shortest solution."""
    return [
        NeededCall(step["tool"], step["args"], _others(step["tool"]))
        for step in task.goal["plan"]
    ]


def _others(tool: str) -> tuple[dict[str, str], ...]:
    """Return other right arguments of a call; ``run_tests`` may also run all tests."""
    return ({"path": ""}, {"path": "tests"}) if tool == "run_tests" else ()


def score_routing(
    task: Task, environment: TeamEnvironment, trajectory: Trajectory
) -> Reward:
    """Score an episode in which a script writes the code, by the calls of the models.

    In a success, the models made all calls of the shortest solution in order, with at
    most ``SPARE_CALLS`` needless calls. They broke no rule, and the graph's own code
    never had to replace a model. A success earns at least 0.9.
    """
    plan = needed(task)
    attempts = Attempts.of(environment.books, trajectory)
    made = _progress(plan, attempts.done)
    over = max(0, len(attempts.tools) - len(plan) - SPARE_CALLS)
    is_clean = not attempts.violations and not environment.fallbacks and not over
    tool, arguments = _shares(plan, attempts)
    if made == len(plan) and is_clean:
        parts = success_parts(attempts, len(plan), ERROR, SPARE_CALLS)
        return Reward(sum(parts.values()), True, parts, 1.0, 1.0)
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
    share = PROGRESS / len(plan)
    next_tool = 0.0
    if made < len(plan) and plan[made].tool in attempts.failed:
        next_tool = NEXT_TOOL
    parts = {
        "progress": share
        * (made + next_tool)
        * melted(len(attempts.tools) - made - SPARE_CALLS),
        "errors": ERROR * min(len(attempts.failed), _MOST_COUNTED),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
        "fallbacks": FALLBACK * min(len(environment.fallbacks), _MOST_COUNTED),
    }
    return Reward(max(-1.0, sum(parts.values())), False, parts, tool, arguments)


def score_outcome(
    task: Task,
    environment: TeamEnvironment,
    trajectory: Trajectory,
    sandbox: AnySandbox,
) -> Reward:
    """Score an episode in which the policy writes the code, by this code.

    Right code earns ``CORRECT``, and handing over to ``finish`` then earns ``FINISHED``
    in addition. Errors, broken rules, and turns in which the graph's own code replaced
    a model each cost a little.
    """
    attempts = Attempts.of(environment.books, trajectory)
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL})
    correct = is_right(task, environment.workspace.files, sandbox)
    finished = ReceivedCall("hand_over", {"to": "finish"}) in attempts.done
    is_clean = not attempts.violations and not environment.fallbacks
    parts = {
        "correct": CORRECT if correct else 0.0,
        "finished": FINISHED if correct and finished else 0.0,
        "errors": ERROR * min(len(attempts.failed), 2),
        "rules": ERROR * min(attempts.violations, 2),
        "fallbacks": ERROR * min(len(environment.fallbacks), 2),
    }
    return Reward(sum(parts.values()), correct and finished and is_clean, parts)


def is_right(task: Task, files: Mapping[str, str], sandbox: AnySandbox) -> bool:
    """Return whether the code gives the right values of hidden expressions."""
    code = {path: text for path, text in files.items() if not is_test_file(path)}
    hidden = task.goal["hidden"]
    return all(path in code for path in hidden) and repaired(sandbox, code, hidden)


def _progress(plan: Sequence[NeededCall], done: Sequence[ReceivedCall]) -> int:
    """Return how many calls of the shortest solution were made, in order."""
    made = 0
    for call in done:
        if made < len(plan) and _matches(plan[made], call):
            made += 1
    return made


def _matches(need: NeededCall, call: ReceivedCall) -> bool:
    return need.tool == call.tool and call.args in (need.arguments, *need.others)


def _shares(plan: Sequence[NeededCall], attempts: Attempts) -> tuple[float, float]:
    """Return two shares from 0 to 1: of needed calls by tool only, of calls made."""
    tools = tools_called((need.tool for need in plan), attempts.tools)
    left = list(attempts.done)
    right = 0
    for need in plan:
        found = next((call for call in left if _matches(need, call)), None)
        if found is not None:
            left.remove(found)
            right += 1
    return tools / len(plan), right / len(plan)
