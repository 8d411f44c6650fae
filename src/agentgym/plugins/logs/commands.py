"""``agentgym tasks from-logs`` and ``from-reviews``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentgym.cli.options import AgentTools
from agentgym.cli.tasks import Output, Tools, needed_tools, refuse_existing, write_tasks
from agentgym.evaluate.numbers import plural

if TYPE_CHECKING:
    from agentgym.plugins.logs import FromLogs


def from_logs(
    file: Annotated[
        Path,
        typer.Argument(
            help='JSON Lines of {"messages": […]} or of reviews, runs of LangSmith or '
            "Langfuse, or OTLP JSON."
        ),
    ],
    tools_from: Tools = None,
    agent: AgentTools = None,
    output: Output = None,
) -> None:
    """Make a tasks file from logs: the users' requests and the calls that followed.

    If tools or an agent are given, calls that do not match a tool are left out.
    """
    found = _from_logs(file, tools_from, agent, output)
    calls = "no calls" if not found.answers else f"{found.answers} calls"
    typer.echo(
        f"{found.tasks} tasks from {' and '.join(found.kinds)}; {calls} with "
        "their tool's answer. Read every line: logged calls may be wrong.",
        err=True,
    )


def from_reviews(
    file: Annotated[
        Path,
        typer.Argument(
            help="Reviews of agentgym.record_review, or logs of an agent with "
            "LangChain's HumanInTheLoopMiddleware."
        ),
    ],
    tools_from: Tools = None,
    agent: AgentTools = None,
    output: Output = None,
) -> None:
    """Make a tasks file from reviewers' decisions on an agent's calls.

    A task expects the approved calls, and the edited calls in their edited form. It
    forbids tools whose calls were all rejected.
    """
    found = _from_logs(file, tools_from, agent, output, reviewed=True)
    made = ", ".join(f"{kind} {n:,}" for kind, n in sorted(found.decisions.items()))
    typer.echo(f"{found.tasks} tasks from reviewers' decisions: {made}.", err=True)


def _from_logs(
    file: Path,
    tools_from: str | None,
    agent: str | None,
    output: Path | None,
    *,
    reviewed: bool = False,
) -> "FromLogs":
    """Write a tasks file from logs or reviews, and report calls that were left out."""
    from agentgym.plugins.logs import from_logs as make

    refuse_existing(output)
    is_given = tools_from is not None or agent is not None
    tools = needed_tools(tools_from, agent) if is_given else None
    found = make(file, tools, reviewed=reviewed)
    write_tasks(found.text, output)
    for why, count in found.skipped.items():
        typer.echo(f"Left out {count}: {why}.", err=True)
    for why, count in found.calls.items():
        typer.echo(f"Left out {plural(count, 'call')}: {why}.", err=True)
    if found.secrets:
        typer.echo(
            f"Replaced {found.secrets} keys or tokens, as SECRET-1; look for others.",
            err=True,
        )
    return found
