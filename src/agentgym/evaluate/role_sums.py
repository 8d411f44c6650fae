"""RoleSums: the figures of each role of a team at one task, as sums."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from pydantic import BaseModel

from agentgym.core.needs import Needs, align
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory
from agentgym.integrations.offered import offered_functions

MAX_TURNS = "max_turns"
"""Kind of reason if a role ended an episode by asking too often."""


class RoleSums(BaseModel, frozen=True, extra="forbid"):
    """The figures of one role in the attempts at one task.

    Attributes:
        attempts: Number of scored attempts in which it made a call.
        model_calls: Number of its model calls; its limit ended ``cut`` of these
            attempts.
        tool_calls: Number of its tool calls; ``reliable`` of them succeeded.
        needed: Needed calls that were its own: those whose tool it called
            (``right_tool``), and those that no role made although it was offered the
            tool. Not counted for a single agent without a name.
        tokens: Sampled tokens, and ``prompt_tokens`` of its prompts, in attempts with
            known token counts.
    """

    attempts: int
    model_calls: int
    cut: int
    tool_calls: int
    reliable: int
    needed: int
    right_tool: int
    tokens: int
    prompt_tokens: int


def add_up_roles(
    attempts: Sequence[Trajectory], needs: Needs | None
) -> dict[str, RoleSums]:
    """Sum up the scored attempts at one task by role."""
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for attempt in attempts:
        for role, counts in _counts(attempt, needs).items():
            sums[role].update(counts)
    names = RoleSums.model_fields
    return {
        role: RoleSums(**{name: counts[name] for name in names})
        for role, counts in sums.items()
    }


def asked_by(trajectory: Trajectory) -> Iterator[tuple[ToolCall, ModelCall | None]]:
    """Yield each tool call with the model call that requested it, or None."""
    asking: ModelCall | None = None
    left = 0
    for step in trajectory.steps:
        if isinstance(step, ModelCall):
            asking, left = step, len(step.tool_calls)
            continue
        yield step, asking if left > 0 else None
        left -= 1


def _counts(trajectory: Trajectory, needs: Needs | None) -> dict[str, Counter[str]]:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    counted = not trajectory.stats().uncounted_calls
    for call in trajectory.model_calls:
        mine = found[call.agent]
        mine["attempts"] = 1
        mine["model_calls"] += 1
        if counted and call.token_counts is not None:
            mine.update(prompt_tokens=call.token_counts[0], tokens=call.token_counts[1])
    asked = list(asked_by(trajectory))
    for made, by in asked:
        if by is not None:
            ok = made.outcome is ToolOutcome.OK
            found[by.agent].update(tool_calls=1, reliable=int(ok))
    if found and trajectory.reason is not None and trajectory.reason.kind == MAX_TURNS:
        longest = max(found, key=lambda role: found[role]["model_calls"])
        found[longest]["cut"] += 1
    if needs is not None and found.keys() - {DEFAULT_AGENT}:
        for role, is_right in _needed(trajectory, asked, needs):
            found[role].update(needed=1, right_tool=int(is_right))
    return found


def _needed(
    trajectory: Trajectory,
    asked: Sequence[tuple[ToolCall, ModelCall | None]],
    needs: Needs,
) -> Iterable[tuple[str, bool]]:
    """Yield the role of each needed call, and whether its tool was called."""
    plan = needs.by_task.get(trajectory.task_id) or ()
    calls = [call for call, _ in asked]
    solved = bool(trajectory.success)
    answered: dict[int, str | None] = {}
    specs = needs.specs_of(trajectory.task_id)
    places = align(plan, calls, specs, succeeded=solved) if plan else ()
    for (call, by), place in zip(asked, places, strict=bool(plan)):
        if place is not None and call.name in plan[place].tools:
            answered[place] = None if by is None else by.agent
    may_call: defaultdict[str, set[str]] = defaultdict(set)
    for model_call in trajectory.model_calls:
        may_call[model_call.agent] |= offered_functions(model_call.tools).keys()
    for place, need in enumerate(plan):
        if (role := answered.get(place)) is not None:
            yield role, True
        elif place not in answered:
            for name, tools in may_call.items():
                if tools & need.tools:
                    yield name, False
