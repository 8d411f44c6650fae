"""Show the work of the coding team in the terminal: its events, and the solution."""

from rich.console import Console, Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from agentgym.plugins.team.solving.events import TeamEvent
from agentgym.plugins.team.solving.solve import Solution

_SHOWN = 200
_MOST_FINDINGS = 20
_STYLES = {
    "supervisor": "cyan",
    "generator": "green",
    "reviewer": "magenta",
    "executor": "yellow",
    "person": "bold",
}
_OUTCOMES = {
    "passed": "Solved: all tests pass.",
    "failed": (
        "Not solved: a test fails, a serious finding is left, or nothing was written."
    ),
    "untested": "Written, but there are no tests that prove it.",
    "stopped": "Ended early.",
}


class TeamLines:
    """Prints one line for each event of a team, such as a tool's result."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, event: TeamEvent) -> None:
        """Print an event; print nothing for the start of a model call (``asked``)."""
        if event.kind == "asked":
            return
        if event.kind == "turn" and event.role == "supervisor":
            self._line(event.role, f"-> {event.text}")
        elif event.kind == "turn":
            self._line(event.role, f"= {event.text}")
        elif event.kind == "tool" and event.tool != "hand_over":
            self._line(event.role, f"{event.tool}: {event.text}")
        elif event.kind == "said":
            self._line(event.role, event.text)

    def _line(self, role: str, text: str) -> None:
        whole = _printable(" ".join(text.split()))
        shown = whole if len(whole) <= _SHOWN else whole[:_SHOWN] + "…"
        line = Text(f"{role:<12}", style=_STYLES.get(role, ""))
        self._console.print(line.append(shown, style="default"), soft_wrap=True)


def solution_view(solution: Solution, *, with_files: bool = True) -> RenderableType:
    """Return a view of a solution: its files, tests, review and cost."""
    parts: list[RenderableType] = [Text()]
    for path in solution.changed:
        text = solution.files.get(path)
        if text is None:
            parts.append(Text(f"{path} (deleted)", style="bold"))
        elif with_files:
            language = Syntax.guess_lexer(path, text)
            parts += [Text(path, style="bold"), Syntax(_printable(text), language)]
    parts.append(Text(_OUTCOMES[solution.outcome], style="bold"))
    if solution.error:
        parts.append(Text(_printable(f"Reason: {solution.error}")))
    parts.append(_facts(solution))
    return Group(*parts)


def _printable(text: str) -> str:
    """Replace characters that cannot be printed, such as control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _facts(solution: Solution) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    tests = solution.tests
    shown = "none since the last edit"
    if tests is not None:
        shown = f"{tests['passed']} passed, {tests['failed']} failed"
    table.add_row("tests", Text(shown))
    for failure in (tests or {}).get("failures", ())[:_MOST_FINDINGS]:
        table.add_row("", Text(_printable(str(failure))))
    table.add_row("findings", Text(str(len(solution.findings))))
    for found in solution.findings[:_MOST_FINDINGS]:
        where = f"{found['path']}:{found['line']}"
        found_text = f"{where} {found['severity']}: {found['message']}"
        table.add_row("", Text(_printable(found_text)))
    for role, used in solution.usage.items():
        text = (
            f"{used.calls} calls, {used.prompt_tokens:,} + {used.response_tokens:,} "
            "tokens"
        )
        table.add_row(role, Text(text))
    if solution.cost is not None:
        table.add_row("cost", Text(f"${solution.cost:.4f}"))
    return table
