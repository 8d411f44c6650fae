"""``agentgym view``: look at runs in a browser."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from agentgym.cli.options import Runs, flag, opt
from agentgym.cli.output import failures_shown, progress_console
from agentgym.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentgym.plugins.view.server import ViewServer
    from agentgym.train.run_folder import RunFolder


def view(
    runs: list[str] | None = typer.Argument(
        None,
        metavar="[RUN]...",
        help="Folders or names of runs; without any, all of the folder of runs.",
        show_default=False,
    ),
    port: Annotated[
        int | None, opt("Port to listen on; 0 takes a free one. By default 8642.")
    ] = None,
    no_open: bool = flag("Print the address; open no browser.", "--no-open"),
    output: Runs = Path("runs"),
) -> None:
    """Look at runs and their rollouts in a browser, until Ctrl-C.

    Works while a run trains, and changes no run. Only a browser on this machine can
    open the page, with the printed address, which contains a token. Links to its pages
    work again after the next start.

    Example: agentgym view runs/coding
    """
    import webbrowser

    from agentgym.train.interrupts import InterruptFlag

    sys.dont_write_bytecode = True  # a scenario's import must not write
    find = _finder(runs or [], output)
    console = progress_console()
    with (
        failures_shown(),
        _view_server(find, port) as server,
        InterruptFlag() as end,
    ):
        server.start()
        page = f"#/run/{quote(found[0].path.name)}" if len(found := find()) == 1 else ""
        console.print(f"Open {server.url}{page}", soft_wrap=True, markup=False)
        if not found:
            console.print(
                f"{output} has no runs yet. Start one in another terminal, e.g. "
                "agentgym train coding --framework langchain: the page lists it as it "
                "begins. Runs of another folder are shown by --output FOLDER.",
                markup=False,
            )
        if not no_open and not webbrowser.open(f"{server.url}{page}"):
            console.print("No browser was found on this machine: open the address.")
        console.print("Ctrl-C ends it.")
        end.wait()
    raise Interrupted(
        "The viewer has ended; its links work again after the next start."
    )


def _view_server(
    find: "Callable[[], Sequence[RunFolder]]", port: int | None
) -> "ViewServer":
    """Return a server on ``port``; by default the usual one, or a free one."""
    from agentgym.plugins.view.server import PORT, ViewServer, kept_token

    token = kept_token()
    if port is None:
        with suppress(UsageError):  # another viewer is open
            return ViewServer(find, port=PORT, token=token)
    return ViewServer(find, port=port or 0, token=token)


def _finder(names: list[str], output: Path) -> "Callable[[], Sequence[RunFolder]]":
    """Return a function that lists the runs with ``names``; all runs without names."""
    from agentgym.train.run_folder import RunFolder, list_runs

    if not names:
        return lambda: list_runs(output)
    found = [RunFolder.open(name, output) for name in dict.fromkeys(names)]
    found = [RunFolder(run.path.resolve()) for run in found]
    if len({run.path.name for run in found}) < len(found):
        raise UsageError(
            "Two of these runs have one folder name, and the page names runs by it: "
            "open them one at a time."
        )
    return lambda: [run for run in found if (run.path / "run.json").exists()]
