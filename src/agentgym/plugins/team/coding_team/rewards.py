"""Score an episode of the team, by its calls or by the code that it wrote."""

from collections.abc import Mapping

from agentgym.core.needs import NeededCall
from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.packs.coding.execution import repaired
from agentgym.packs.kit.code_rewards.parts import is_test_file
from agentgym.packs.kit.rewards import grade, in_order, not_made
from agentgym.plugins.team.coding_team.environment import TeamEnvironment
from agentgym.sandbox import Sandbox
from agentgym.scenarios.plan_reward import (
    NEXT_TOOL,
    NO_CALL,
    PROGRESS,
    Attempts,
    ReceivedCall,
    melted,
)

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
    made = in_order(plan, attempts.done, _matches)
    over = len(attempts.tools) - made - SPARE_CALLS
    is_clean = not attempts.violations and not environment.fallbacks
    credit = float(made)
    if made < len(plan) and plan[made].tool in attempts.failed:
        credit += NEXT_TOOL
    parts = {
        "progress": PROGRESS / len(plan) * credit * melted(over),
        "errors": ERROR * min(len(attempts.failed), _MOST_COUNTED),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
        "fallbacks": FALLBACK * min(len(environment.fallbacks), _MOST_COUNTED),
    }
    right = len(plan) - len(not_made(plan, attempts.done, _matches))
    return grade(
        attempts,
        [need.tool for need in plan],
        parts,
        success=made == len(plan) and is_clean and over <= 0,
        arguments=right / len(plan),
        error=ERROR,
        spare=SPARE_CALLS,
    )


def score_outcome(
    task: Task,
    environment: TeamEnvironment,
    trajectory: Trajectory,
    sandbox: Sandbox,
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


def is_right(task: Task, files: Mapping[str, str], sandbox: Sandbox) -> bool:
    """Return whether the code gives the right values of hidden expressions."""
    code = {path: text for path, text in files.items() if not is_test_file(path)}
    hidden = task.goal["hidden"]
    return all(path in code for path in hidden) and repaired(sandbox, code, hidden)


def _matches(need: NeededCall, call: ReceivedCall) -> bool:
    return need.tool == call.tool and call.args in (need.arguments, *need.others)
