"""``agentgym solve``: let the coding team solve a problem, live."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentgym.cli.options import AsJson, flag, option, token_prices
from agentgym.cli.output import print_json, progress_console
from agentgym.core.files import folder_problem
from agentgym.core.panels import AGENT, MODEL, OUTPUT, RUN
from agentgym.errors import Interrupted, NotFoundError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from agentgym.plugins.team.solving.solve import Solution, TeamSession

TEAMS = ("coding",)
_LEAVE = frozenset({"exit", "quit", "bye"})


def solve(
    team: str = typer.Argument("coding", help="The team that works: coding."),
    problem: str | None = option("The task of the code.", metavar="TEXT", panel=RUN),
    file: list[Path] | None = option(
        "A file of the project, code or tests. Can be given again.",
        metavar="FILE",
        panel=RUN,
    ),
    language: str = option(
        "Language of new files.",
        default="python",
        metavar="python|javascript|typescript|go|rust|java|cpp",
        panel=RUN,
    ),
    model: str | None = option(
        "openai:NAME, anthropic:NAME, http://host/v1#NAME, a folder or nano, for "
        "all roles.",
        metavar="MODEL",
        panel=MODEL,
    ),
    models: str | None = option(
        "By role: generator=openai:NAME,reviewer=anthropic:NAME.",
        metavar="ROLE=MODEL,…",
        panel=MODEL,
    ),
    fallback: str | None = option(
        "A model for a role whose own has failed twice.", metavar="MODEL", panel=MODEL
    ),
    agent: str | None = option(
        "A trained agent, for the roles that --models leaves out.",
        metavar="NAME",
        panel=AGENT,
    ),
    human: bool = flag(
        "Ask you whether risky edits stay, on a deadlock, and after failed rounds.",
        "--human",
        panel=RUN,
    ),
    max_rounds: int = option(
        "Turns of the generator.", default=3, min=1, max=50, panel=RUN
    ),
    chat: bool = flag("Go on with further requests.", "--chat", panel=RUN),
    save: Path | None = option(
        "Folder that the changed files are written to.", metavar="FOLDER", panel=OUTPUT
    ),
    price_in: float | None = option(
        "$ per million prompt tokens.", min=0, panel=OUTPUT
    ),
    price_out: float | None = option(
        "$ per million response tokens.", min=0, panel=OUTPUT
    ),
    unsafe_local_exec: bool = flag(
        "Run model-written code without a sandbox.", "--unsafe-local-exec", panel=RUN
    ),
    as_json: AsJson = False,
) -> None:
    """Let a team of models solve a programming problem, without training.

    A supervisor routes between a generator, a reviewer and an executor until the tests
    pass. All code runs in the sandbox. Exit code 1: the tests do not pass.

    Example: agentgym solve coding --problem "Reverse a string"
    --model openai:gpt-4.1-mini
    """
    import asyncio

    from agentgym.plugins.team.screens import TeamLines
    from agentgym.plugins.team.solving.solve import open_session, read_files
    from agentgym.sandbox import SandboxConfig
    from agentgym.security.audit import AuditLog, audited, default_log

    if team not in TEAMS:
        raise NotFoundError("team", team, TEAMS)
    if problem is None and not chat:
        raise UsageError('Which problem? Give --problem "Write a function that …".')
    prices = token_prices("price", price_in, price_out)
    if save is not None and (fault := folder_problem(save.expanduser())):
        raise UsageError(f"--save {save}: cannot write there: {fault}.")
    console = progress_console(as_json)
    session = open_session(
        model=model,
        models=_by_role(models),
        agent=agent,
        fallback=fallback,
        files=read_files(file or []),
        language=language,
        human=_person(console) if human else None,
        max_rounds=max_rounds,
        listener=TeamLines(console),
        prices=prices,
        sandbox=SandboxConfig(unsafe_local_exec=unsafe_local_exec),
    )
    notes = list(session.notes)
    if human and not sys.stdin.isatty():
        notes.append(
            "--human reads the answers from standard input, which is not a terminal: "
            "once it ends, each question counts as answered by no."
        )
    for note in notes:
        console.print(f"Note: {note}", style="dim")
    with session, audited(AuditLog(default_log(), private=True)):
        try:
            last = asyncio.run(_talk(session, problem, chat, save, console, as_json))
        except KeyboardInterrupt:
            kept = _keep(session.so_far("Interrupted"), save)
            raise Interrupted(f"Interrupted. {kept}") from None
    if last is not None and not last.passed:
        raise typer.Exit(1)


async def _talk(
    session: "TeamSession",
    problem: str | None,
    chat: bool,
    save: Path | None,
    console: "Console",
    as_json: bool,
) -> "Solution | None":
    """Let the team work on requests; return the last solution, or None without any."""
    import asyncio

    from agentgym.plugins.team.screens import solution_view

    last = None
    asked = problem
    while True:
        if asked is None:
            asked = _read(console, "Next request (empty ends it): ")
            if asked is None or not asked.strip() or asked.strip().lower() in _LEAVE:
                return last
        try:
            last = await session.ask(asked)
        except (KeyboardInterrupt, asyncio.CancelledError):
            # Save now: asyncio waits for threads before it ends the loop, and a second
            # Ctrl-C may end the process before that.
            with suppress(UsageError):
                _keep(session.so_far("Interrupted"), save)
            raise
        console.print(solution_view(last, with_files=save is None))
        if save is not None:
            try:
                console.print(_keep(last, save))
            except UsageError:
                console.print(solution_view(last))  # the only copy of the files
                raise
        if as_json:
            print_json(last.record())
        if not chat:
            return last
        asked = None


def _by_role(text: str | None) -> dict[str, str]:
    """Parse the value of ``--models``, and return the model's name for each role."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, (text or "").split(","))):
        role, equals, named = (word.strip() for word in part.partition("="))
        if not equals or not role or not named:
            raise UsageError(
                f"--models takes role=model with commas between them, not {part!r}."
            )
        if role in found:
            raise UsageError(f"--models names the role {role!r} twice.")
        found[role] = named
    return found


def _person(console: "Console") -> Any:
    def ask(question: dict[str, Any]) -> str | None:
        console.print()
        for path, text in question.get("files", {}).items():
            console.print(f"--- {path}", style="bold")
            console.print("(deleted)" if text is None else text)
        if question.get("asked_again"):
            console.print("That was neither yes, no, nor an instruction of two words.")
        return _read(console, f"{question['text']}\n> ")

    return ask


def _read(console: "Console", prompt: str) -> str | None:
    """Read a line from standard input; return None if the input has ended."""
    try:  # the prompt holds names of files, not markup
        return console.input(prompt, markup=False, emoji=False)
    except EOFError:
        return None


def _keep(solution: "Solution", save: Path | None) -> str:
    """Write the changed files to the folder ``save``; return a sentence for the user.

    If ``save`` is None, nothing is written.
    """
    if save is None:
        return "Nothing was saved; --save FOLDER keeps the files."
    written = solution.save(save)
    if not written:
        return "No file was changed."
    return f"Saved: {', '.join(map(str, written))}"
