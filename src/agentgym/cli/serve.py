"""``agentgym serve``: a trained agent's weights behind an OpenAI-compatible server."""

from typing import Annotated

import typer

from agentgym.cli.options import opt
from agentgym.cli.output import progress_console

_KEY = "AGENTGYM_API_KEY"


def serve(
    name: Annotated[
        str, typer.Argument(help="NAME, NAME@N, a folder, or a Hugging Face id.")
    ],
    host: Annotated[
        str, opt("Address to listen on; another than 127.0.0.1 needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, opt("Port to listen on; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        str | None, opt("Key that requests must have.", envvar=_KEY)
    ] = None,
) -> None:
    """Answer OpenAI's chat completions with a trained agent, until Ctrl-C.

    Streaming and tool calls work as with OpenAI. Answers under way are finished
    first when it is ended; a second Ctrl-C cuts them off.
    """
    from agentgym.errors import Interrupted
    from agentgym.serving.server import AgentServer
    from agentgym.train.process import InterruptFlag
    from agentgym.train.trained_agent import TrainedAgent

    agent = TrainedAgent.load(name)
    if agent.unchecked:
        typer.echo(f"Warning: {agent.unchecked}", err=True)
    console = progress_console()
    console.print(f"Loading {agent.name}.")
    options = {"host": host, "port": port, "api_key": api_key}
    with (
        AgentServer.of(agent, agent.name, **options) as server,
        InterruptFlag() as stop,
    ):
        key = "the key that you gave" if api_key else "any text, as none is asked for"
        console.print(f"Serving {agent.name}, until Ctrl-C:\n")
        console.print(f"  base URL  {server.url}", soft_wrap=True)
        console.print(f"  model     {server.models[0]}", soft_wrap=True)
        console.print(f"  API key   {key}")
        stop.wait()
        console.print("\nEnding: answers under way are finished first.")
    raise Interrupted(f"{agent.name} is no longer served.")
