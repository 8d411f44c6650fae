"""RoleSums: counts for each agent (role) of a team, over all attempts at one task."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from agentgym.core.needs import Needs, align
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.records import FrozenRecord
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory
from agentgym.integrations.offered import offered_functions
from agentgym.scenarios.tool_tasks.unseen import learn_from

MAX_TURNS = "max_turns"
"""``Reason.kind`` of an episode in which a role made too many model calls."""


class RoleSums(FrozenRecord):
    """The counts of one role over all attempts at one task.

    Attributes:
        attempts: Number of scored attempts in which the role made a model call.
        cut: Number of attempts that ended because this role made too many model calls.
        tool_calls: Number of tool calls that the role requested, without answers in a
            form.
        reliable: Number of these calls that ran without error.
        needed: Number of needed calls that count for the role: those whose tool the
            role called, and those that no role made although this role was offered the
            tool. 0 for a single agent without a name.
        right_tool: Number of needed calls whose tool the role called.
        tokens: Tokens sampled by the role, in attempts with known token counts.
        prompt_tokens: Tokens of the role's prompts, in the same attempts.
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
    """Add up each role's counts over the scored attempts at one task."""
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
    """Yield each tool call with the model call that requested it."""
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
    answers = trajectory.form_answers()
    for made, by in asked:
        if by is not None and made.id not in answers:
            ok = not made.failed
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
    """Yield pairs of a role and whether it called the tool of a needed call.

    A needed call gives one pair for each role for which it counts; these roles are
    defined at ``needed`` in :class:`RoleSums`.
    """
    plan = needs.by_task.get(trajectory.task_id) or ()
    calls = [call for call, _ in asked]
    solved = bool(trajectory.success)
    answered: dict[int, str | None] = {}
    specs = needs.specs_of(trajectory.task_id)
    learn_from(specs, trajectory)
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
