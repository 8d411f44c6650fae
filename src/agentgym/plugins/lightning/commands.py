"""``agentgym gateway`` and ``agentgym job``: run agents for an external trainer."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym.cli.options import (
    OF_TOOLS,
    Command,
    Host,
    Port,
    opt,
    option,
    takes,
    use_agent,
    use_tool_options,
)
from agentgym.cli.output import failures_shown, progress_console
from agentgym.errors import Interrupted, RolloutError, UsageError

if TYPE_CHECKING:
    from agentgym.core.config import TrainingConfig
    from agentgym.plugins.lightning.service import GatewayService
    from agentgym.train.interrupts import InterruptFlag

_KEY = "AGENTGYM_GATEWAY_KEY"
_LOOK_S = 0.5
_DAY_S = 86_400

_OF_AGENT = (
    *("framework", "agent.reference", "agent.context", "agent.inputs"),
    *("agent.on_interrupt", "rollout_timeout_s", "unsafe_local_exec"),
)
Config = Annotated[Path | None, opt("YAML file of settings; options win over it.")]


@takes(
    *_OF_AGENT,
    *("workers", "concurrency", "max_tokens", "temperature", "eval_temperature"),
    "seed",
    more=OF_TOOLS,
)
def gateway(
    command: typer.Context,
    given: dict[str, Any],
    scenario: str | None = typer.Argument(
        None, help="Scenario that workers run; without one, a controller runs agents."
    ),
    model_name: str | None = option(
        "Name under which the trainer registers its servers; verl: "
        "actor_rollout_ref.model.path.",
        show_default="required",
    ),
    upstream: list[str] | None = option(
        "Address of a server of the model, http://host:8000/v1, where no trainer "
        "registers any; its key is in AGENTGYM_API_KEY. Can be given again."
    ),
    host: Host = "127.0.0.1",
    port: Port = 8080,
    api_key: str | None = option("Key that requests must have.", envvar=_KEY),
    data: Path = option(
        "Folder of the records; a rollout found in it is continued.",
        default=Path("gateway"),
    ),
    store: Path | None = option(
        "SQLite file of the records.", show_default="rollouts.db in --data"
    ),
    program: Command = None,
    grace: float = option(
        "Seconds that running calls have to end once it shuts down.", default=20.0
    ),
    config: Config = None,
) -> None:
    """Serve rollouts to another trainer, such as Agent Lightning.

    With a scenario, worker processes of this command run the agents. Without one,
    Agent Lightning's controller starts `agentgym job` for each rollout.

    Example: agentgym gateway coding --framework langchain --model-name MODEL
    """
    from agentgym.models.reference import KEY_OF_ADDRESS, base_url
    from agentgym.plugins.lightning.service import GatewayService
    from agentgym.rollout.absolute_paths import located
    from agentgym.rollout.gateway.http import check_address
    from agentgym.rollout.session import (
        DATABASE_FILE,
        check_rollouts,
        gateway_settings,
        worker_count,
    )
    from agentgym.train.interrupts import InterruptFlag

    if not model_name:
        raise UsageError(
            "Give --model-name: the name under which the trainer registers the servers "
            "of its model, of verl actor_rollout_ref.model.path; with --upstream, the "
            "model's name there."
        )
    servers = tuple(dict.fromkeys(base_url(url) for url in upstream or ()))
    if not 0 <= grace <= _DAY_S:
        raise UsageError(f"grace = {grace:g}: give seconds from 0 to {_DAY_S:,}.")
    check_address(host, port, api_key, how=f"with --api-key or {_KEY}")
    chosen, count = _settings(command, given, scenario, config), 0
    if scenario is not None:
        chosen = located(chosen)
        found, _ = check_rollouts(chosen)
        found.close()
        count = worker_count(chosen)
    database = store or data / DATABASE_FILE
    if database.is_dir():
        raise UsageError(
            f"{database} is a folder: name a file in it, or give it with --data."
        )
    _make_folder(database.parent)
    settings = gateway_settings(
        chosen,
        host=host,
        port=port,
        api_key=api_key,
        model_name=model_name,
        grace_s=grace,
        upstreams=servers,
        upstream_key=os.environ.get(KEY_OF_ADDRESS, "").strip(),
    )
    service = GatewayService(database, settings, chosen, count)
    with failures_shown(), service:
        with InterruptFlag() as stop:  # a reader of the address may end it
            who = "a controller's, each runs `agentgym job`"
            if count:
                ours = "1 worker runs" if count == 1 else f"{count} workers run"
                who = f"{ours} {chosen.scenario_name}"
            key = "the one that you gave" if api_key else service.gateway.api_key
            console = progress_console()
            console.print(f"Serving rollouts for {model_name}, until Ctrl-C:\n")
            console.print(f"  address  {service.gateway.url}", soft_wrap=True)
            console.print(f"  agents   {who}")
            if servers:
                console.print(f"  models   {', '.join(servers)}", soft_wrap=True)
            console.print(f"  store    {database}", soft_wrap=True)
            agents = f"{service.gateway.agent_key}: asks the model, and nothing else"
            console.print(f"  agent key  {agents}", soft_wrap=True)
            console.print(f"  API key  {key}", soft_wrap=True)
            _wait(service, stop)
        _tell_of_calls(service, grace)
    raise Interrupted("The gateway no longer answers.")


@takes(*_OF_AGENT, more=OF_TOOLS)
def job(
    command: typer.Context,
    given: dict[str, Any],
    scenario: str | None = typer.Argument(
        None, help="Scenario of the task; see `scenarios list`."
    ),
    program: Command = None,
    config: Config = None,
) -> None:
    """Run one rollout for Agent Lightning, and report its result.

    Agent Lightning's controller starts this command for each rollout, and names the
    rollout in AGL_OPENAI_BASE_URL and AGL_KEY. Exits with 1 if the rollout has no
    reward.

    Example: agentgym job coding --framework langchain
    """
    from agentgym.plugins.lightning.job import Assignment, run_job

    assignment = Assignment.read()
    ended = run_job(_settings(command, given, scenario, config), assignment)
    typer.echo(
        f"Rollout {ended.rollout_id}: reward {ended.reward:g}, "
        f"{len(ended.model_calls)} model calls."
    )


def _settings(
    command: typer.Context,
    given: dict[str, Any],
    scenario: str | None,
    config: Path | None,
) -> "TrainingConfig":
    """Return the command's settings; its options override the file ``config``."""
    from agentgym.core.config import TrainingConfig
    from agentgym.engines.lengths import paced_for_servers

    use_agent(given, command.params.get("program"))
    given |= {} if scenario is None else {"scenario": scenario}
    use_tool_options(command, given)
    if config is not None:
        return paced_for_servers(TrainingConfig.from_yaml(config, **given))
    return paced_for_servers(TrainingConfig.create(**given))


def _make_folder(data: Path) -> None:
    from agentgym.security.files import make_private_folder

    try:
        make_private_folder(data)
    except OSError as error:
        raise UsageError(
            f"{data} cannot be a folder: {error.strerror}. Choose another with --data "
            "or --store."
        ) from None


def _tell_of_calls(service: "GatewayService", grace: float) -> None:
    if (calls := service.gateway.admission.in_flight) and grace:
        what = "a call" if calls == 1 else f"{calls} calls"
        typer.echo(
            f"Waiting at most {grace:g} s for {what} under way; Ctrl-C again ends it.",
            err=True,
        )


def _wait(service: "GatewayService", stop: "InterruptFlag") -> None:
    """Wait for Ctrl-C or SIGTERM; print problems, and raise if the service fails."""
    known: list[str] = []
    while not stop.wait(_LOOK_S):
        troubles = service.troubles
        for line in troubles:
            if line not in known:
                typer.echo(line, err=True)
        known = troubles
        if service.failure is not None:
            raise RolloutError(service.failure)
