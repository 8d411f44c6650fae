"""``agentgym gpu``: list providers, prices and rented machines, and end machines."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentgym.cli.options import AsJson, Runs, flag, option
from agentgym.cli.output import print_json, progress_console
from agentgym.errors import ComputeError, UsageError

if TYPE_CHECKING:
    from agentgym.plugins.cloud.base import Offer, Provider

app = typer.Typer(
    name="gpu",
    help="GPUs here and of providers: list, prices, reap.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_providers(as_json: AsJson = False) -> None:
    """List the providers of machines and the setup each needs; sends no request."""
    from rich.text import Text

    from agentgym.plugins.cloud.base import problem, providers
    from agentgym.ui.layout import grid

    rows: list[dict[str, Any]] = [
        {"name": "local", "key": "", "problem": "", "costs": False}
    ]
    for each in providers():
        named = {"name": each.name, "key": each.key}
        rows.append({**named, "problem": problem(each), "costs": True})
    table = grid()
    table.add_column(style="dim", overflow="fold")
    for row in rows:
        key, wrong = row["key"], row["problem"]
        lacks = "no key" if key else "not installed"
        needs = wrong or (f"{key} is set" if key else "installed")
        table.add_row(
            row["name"],
            Text(lacks, "yellow") if wrong else Text("ready", "green"),
            needs if row["costs"] else "this machine; costs nothing",
        )
    if as_json:
        print_json(rows)
    else:
        progress_console().print(table)


@app.command()
def prices(
    provider: str | None = option(
        "Only this provider.", show_default="all with a key; sky if named"
    ),
    model: str | None = option("Only machines that can train this model."),
    lora_rank: int | None = option("Rank of its adapter; 0 trains all weights."),
    spot: bool = flag("Of machines that may be taken away, for less.", "--spot"),
    as_json: AsJson = False,
) -> None:
    """Show the prices of machines per hour now, the cheapest first. Rents nothing."""
    from agentgym.core.config import TrainingConfig
    from agentgym.plugins.cloud.base import in_cents
    from agentgym.plugins.cloud.quote import fits, need_of
    from agentgym.ui.layout import headed

    config = TrainingConfig.create(model=model, lora_rank=lora_rank)
    need = None if model is None else need_of(config)
    offers, problems = _offers(provider, spot)
    if need is not None:
        offers = [offer for offer in offers if fits(offer, need)]
    offers.sort(key=lambda offer: (offer.hourly, offer.gpu, offer.region))
    table = headed(2)
    table.add_column("$ an hour", justify="right", no_wrap=True)
    table.add_column("GPU", overflow="fold")
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("of", no_wrap=True)
    table.add_column("where", overflow="fold")
    for offer in offers:
        table.add_row(
            in_cents(offer.hourly),
            offer.gpu,
            f"{offer.gpu_memory_gb:.0f} GB",
            offer.provider,
            offer.region or "any" if offer.is_available else "taken",
            style="" if offer.is_available else "dim",
        )
    if as_json:
        print_json(offers)
    else:
        console = progress_console()
        if need is not None:
            console.print(f"{model} needs {need.words}.\n")
        none = "No provider offers a machine that fits."
        console.print(table if offers else none)
    if problems:
        raise ComputeError(" ".join(problems))


def _offers(named: str | None, spot: bool) -> "tuple[list[Offer], list[str]]":
    """Ask providers for machines; return the offers, and the errors of requests."""
    from agentgym.plugins.cloud.base import (
        PROVIDERS,
        asked_unnamed,
        providers,
        require_spot,
    )

    if named is None and not spot:
        asked = _configured(asked_unnamed())
    else:
        asked = providers() if named is None else [PROVIDERS.get(named)]
        asked = require_spot(asked) if spot else asked
    offers, problems = [], []
    for provider in asked:
        try:
            provider.check()
            found = provider.offers()
        except ComputeError as error:
            problems.append(str(error))
            continue
        offers += [each for each in found if each.is_usable and each.is_spot == spot]
    return offers, problems


def _configured(asked: "list[Provider]") -> "list[Provider]":
    """Return ``asked``; raise ComputeError if it has no provider."""
    from agentgym.plugins.cloud.base import providers

    if not asked:
        keys = " or ".join(each.key for each in providers() if each.key)
        raise ComputeError(
            f"No provider has a key: set {keys}, or put it into the file .env. "
            "`agentgym gpu list` says where keys are made."
        )
    return asked


@app.command()
def reap(
    run: str | None = option("Only the machine of this run."),
    output: Runs = Path("runs"),
    every: bool = flag("Also those that were not rented from this folder.", "--all"),
    yes: bool = flag("End them without a question.", "--yes"),
    as_json: AsJson = False,
) -> None:
    """End rented machines that no run uses any more.

    Shows and ends only machines whose name begins with "agentgym-". Two kinds are left
    running: machines of runs that still go on (--run ends one of them), and machines
    that were rented from another folder or computer (--all ends them). If a machine was
    requested minutes ago and its provider does not list it yet, the list is read again.
    Exits with 1 if a machine could not be ended.
    """
    from agentgym.plugins.cloud import reap as machines
    from agentgym.plugins.cloud.base import problem, providers
    from agentgym.plugins.cloud.rented import Rented

    name, waits = None if run is None else _machine_of(run, output), Rented.waits
    asked = _configured([each for each in providers() if not problem(each)])
    console = progress_console(as_json)
    found, remarks, problems = machines.find_machines(asked, output, waits)
    if name is not None:
        found = ended = [each for each in found if each.machine.name == name]
    else:
        ended = [each for each in found if not each.is_used and (each.run or every)]
    for remark in remarks:
        console.print(remark)
    if found:
        console.print(machines.machines_view(found))
    elif not remarks and len(problems) < len(asked):
        names = [each.name for each in asked if each.name not in problems]
        console.print(f"{', '.join(names)}: nothing of AgentGym's is rented.")
    if name is None and not every and any(each.run is None for each in found):
        console.print(
            "Machines of other folders may be in use and are left alone; --all ends "
            "them, too."
        )
    if ended and not yes and not _agreed(len(ended)):
        raise UsageError(
            "Nothing was ended. Give --yes to end them without a question."
        )
    wrong, by_name = [*problems.values()], {each.name: each for each in asked}
    for each in ended:
        try:
            machines.reap(each, by_name[each.machine.provider], waits)
        except ComputeError as error:
            wrong.append(f"{each.machine.name} could not be ended: {error}")
    if as_json:
        print_json([{**e.as_json(), "ended": e in ended} for e in found])
    if wrong:
        raise ComputeError(" ".join(wrong))
    if ended:
        console.print("Ended; their providers no longer list them.")


def _machine_of(run: str, output: Path) -> str:
    """Return the name of the machine that was rented for a run."""
    from agentgym.plugins.cloud.record import MachineRecord
    from agentgym.train.run_folder import RunFolder

    folder = RunFolder.open(run, output)
    record = MachineRecord.read(folder.path)
    if record is None:
        raise UsageError(f"No machine was rented for the run in {folder.path}.")
    return record.name


def _agreed(count: int) -> bool:
    """Ask whether to end ``count`` machines; return False without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(f"End {count}?", err=True)
