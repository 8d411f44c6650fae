"""What the terminal shows of rollouts on their own."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from agentgym.core.trajectory import Summary
from agentgym.ui.tables import grid, indent
from agentgym.ui.words import duration, number, plural

_LOSSES = 20


def summary_view(summary: Summary) -> RenderableType:
    """Show where all rollouts went, why, and what they took."""
    title = Text.assemble(
        (f"{plural(summary.rollouts, 'rollout')}: ", "bold"),
        f"{summary.succeeded:,} succeeded, {summary.failed:,} failed, "
        f"{summary.dropped:,} dropped",
        ("" if summary.adds_up else "  (does not add up!)", "bold red"),
    )
    errors = plural(summary.tool_errors, "error")
    facts = grid(
        *((reason, f"{count:,}") for reason, count in summary.reasons.items()),
        ("model calls", f"{summary.steps:,}"),
        ("tool calls", f"{summary.tool_calls:,}, {errors}"),
        ("tokens", _tokens(summary)),
    )
    if summary.mean_reward is not None:
        scored = plural(summary.scored, "rollout")
        facts.add_row("mean reward", f"{number(summary.mean_reward)} over {scored}")
    facts.add_row("time", f"{duration(summary.mean_duration_s)} a rollout")
    return Group(title, indent(facts))


def continuity_view(losses: Mapping[str, Sequence[str]]) -> RenderableType:
    """Show where conversations lost context, by rollout."""
    if not losses:
        return Text("No conversation lost context.", "green")
    lines = [f"  {name} {loss}" for name, found in losses.items() for loss in found]
    title = f"Context was lost in {plural(len(losses), 'rollout')}:"
    more = len(lines) - _LOSSES
    shown = lines[:_LOSSES] + ([f"  ({more:,} more; see --json)"] if more > 0 else [])
    return Text("\n".join([title, *shown]), "yellow")


def _tokens(summary: Summary) -> str:
    if summary.steps == summary.uncounted_calls:
        return "not counted by the model"
    text = f"{summary.prompt_tokens:,} in prompts, {summary.response_tokens:,} sampled"
    if summary.uncounted_calls:
        text += f"; {plural(summary.uncounted_calls, 'call')} not counted"
    return text
