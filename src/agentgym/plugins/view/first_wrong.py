"""Find the first wrong call of a rollout, and the call that was needed instead."""

from collections.abc import Sequence
from typing import Any

from agentgym.core.needs import Needs
from agentgym.core.task import Task
from agentgym.core.trajectory import Trajectory
from agentgym.errors import message_of
from agentgym.evaluate.call_classes import CallClass, JudgedCall, judge_calls
from agentgym.evaluate.evaluation import judge as judge_all
from agentgym.rollout.record import read_task
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import needs_of

# For each class of tool calls, the sentence that the page shows.
WORDS = {
    CallClass.INVENTED_TOOL: "This tool does not exist.",
    CallClass.MALFORMED: "The call could not be read.",
    CallClass.MISSING: "A required argument is missing.",
    CallClass.EXTRA: "It has an argument that the tool does not know.",
    CallClass.WRONG_TYPE: "An argument has the wrong type.",
    CallClass.RULE_BROKEN: "A rule forbids this call.",
    CallClass.OWN: "A tool of the agent's own.",
    CallClass.RIGHT: "Right.",
    CallClass.WRONG_VALUE: "The tool is right; an argument has the wrong value.",
    CallClass.FAULT: "It met an injected fault.",
    CallClass.RAISED: "The tool refused it.",
    CallClass.REPEATED: "It repeats an earlier call.",
    CallClass.WRONG_TOOL: "Another tool was needed.",
    CallClass.UNNEEDED: "The task does not need it.",
    CallClass.UNJUDGED: "The needed calls of this task are not known.",
}
_HARMLESS = {CallClass.OWN, CallClass.RIGHT, CallClass.UNJUDGED, CallClass.FAULT}
_NEEDLESS = {CallClass.REPEATED, CallClass.UNNEEDED}
STOPPED = "The agent stopped before it made this call."


class CallJudge:
    """Compares rollouts' tool calls with those that the scenario needs."""

    def __init__(self, reference: str) -> None:
        self._scenario: Scenario | None = None
        self.problem = ""
        try:
            self._scenario = get_scenario(reference)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the user's
            self.problem = (
                f"The scenario {reference} could not be loaded, so the needed calls "
                f"are not known: {message_of(error)}"
            )

    def judge(self, rollout_input: Any, trajectory: Trajectory) -> dict[str, Any]:
        """Return each call's class (right, or its fault) and the first wrong call.

        If the needed calls are not known, ``problem`` says why.
        """
        problem, needs = self.problem, Needs({}, {})
        if self._scenario is not None:
            try:
                needs = needs_of(self._scenario, [read_task(rollout_input)])
            except Exception as error:  # noqa: BLE001 - code of the user's
                problem = (
                    f"The scenario did not list the needed calls: {message_of(error)}"
                )
        task = trajectory.task_id
        needed = needs.by_task.get(task)
        if needed is None and not problem:
            problem = "The scenario does not list the needed calls of this task."
        judged = judge_calls(trajectory, needed, needs.specs_of(task))
        plan = [
            {
                "tool": need.tool,
                "arguments": dict(need.arguments),
                "others": [dict(other) for other in need.others],
                "by_outcome": sorted(need.by_outcome),
                "instead": [
                    {"tool": each.tool, "arguments": dict(each.arguments)}
                    for each in need.instead
                ],
            }
            for need in needed or ()
        ]
        return {
            "classes": [
                {"kind": call.kind, "words": WORDS[call.kind], "needed": call.needed}
                for call in judged
            ],
            "needed": None if needed is None else plan,
            "problem": problem,
            "first_wrong": _first_wrong(judged, len(plan), bool(trajectory.success)),
        }

    def confusion(
        self, tasks: Sequence[Task], trajectories: Sequence[Trajectory]
    ) -> dict[str, Any]:
        """Return how often each tool was called when a given tool was needed."""
        empty: dict[str, Any] = {"rollouts": len(trajectories), "matrix": None}
        if self._scenario is None:
            return empty | {"problem": self.problem}
        try:
            _, matrix = judge_all(self._scenario, tasks, trajectories)
        except Exception as error:  # noqa: BLE001 - code of the user's
            return empty | {"problem": message_of(error)}
        if matrix is None:
            return empty | {"problem": "The needed calls of these tasks are not known."}
        return empty | {"problem": "", "matrix": matrix}


def _first_wrong(
    judged: Sequence[JudgedCall], needed: int, succeeded: bool
) -> dict[str, Any] | None:
    """Return the indices of the first wrong call, and of the needed call instead.

    Without a wrong call, it is the first repeated or unneeded call; None if the agent
    stopped too early. Return None if nothing was wrong.
    """
    places = [n for n, call in enumerate(judged) if _is_wrong(call)]
    if not places and not succeeded:
        places = [n for n, call in enumerate(judged) if call.kind in _NEEDLESS]
    if places:
        place = places[0]
        wanted = judged[place].needed
        if wanted is None:
            wanted = _next_needed(judged[:place], needed)
        kind = judged[place].kind
        words = WORDS[CallClass.RAISED if kind in _HARMLESS else kind]
        return {"call": place, "needed": wanted, "words": words}
    missing = _next_needed(judged, needed)
    if succeeded or missing is None:
        return None
    return {"call": None, "needed": missing, "words": STOPPED}


def _is_wrong(call: JudgedCall) -> bool:
    """Return whether a call failed or was wrong; repeated or unneeded is not wrong."""
    if call.call.failed:
        return True
    return call.kind not in _HARMLESS | _NEEDLESS


def _next_needed(before: Sequence[JudgedCall], needed: int) -> int | None:
    """Return the index of the first needed call that was not made; None if all were."""
    done = {call.needed for call in before if call.kind is CallClass.RIGHT}
    return next((place for place in range(needed) if place not in done), None)
