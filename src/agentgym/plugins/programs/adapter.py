"""CommandAdapter: train programs in any language, ``--command "node agent.js"``."""

import functools
import os
from typing import Any

import orjson

from agentgym.core.agent import Trained
from agentgym.core.background import in_background
from agentgym.core.files import parse_json
from agentgym.core.openai import CONTEXT_LENGTH, DEFAULT_AGENT, ApiError
from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import NoToolsError, RolloutError, ToolError, UnsupportedError
from agentgym.integrations.base import (
    AgentLoop,
    Blueprint,
    Conversation,
    FrameworkAdapter,
    refuse_graph_options,
)
from agentgym.integrations.episode import Episode, EpisodeCut, current_episode
from agentgym.plugins.programs.attempt import ProgramAttempts
from agentgym.programs.program import ProgramCommand
from agentgym.scenarios.schemas import spec_of_openai

_SEEN = "its tools were seen"
_TIMEOUT_S = 60.0


def offered_tools(program: ProgramCommand) -> list[ToolSpec]:
    """Start a program, and return the tools in its first model request."""
    return in_background(_offered_tools(program))


async def _offered_tools(program: ProgramCommand) -> list[ToolSpec]:
    seen: list[Any] = []

    async def ask(episode: Episode, body: dict[str, Any], role: str) -> dict[str, Any]:
        seen.extend(body.get("tools") or ())
        episode.turns += 1
        episode.cut_short(_SEEN)
        raise EpisodeCut(_SEEN)

    task = Task(
        id="tools",
        split=Split.TRAIN,
        seed=0,
        family="tools",
        level=1,
        instruction="What can you do?",
    )
    episode = Episode(task)
    attempts = ProgramAttempts(program, "policy", ask, timeout_s=_TIMEOUT_S)
    why = "it offered its model none in its first request"
    try:
        await attempts.run(episode)
    except EpisodeCut:
        pass
    except RolloutError as error:
        why = str(error)
    finally:
        await attempts.close()
    try:
        specs = [spec_of_openai(tool) for tool in seen]
    except ValueError as error:
        specs, why = [], f"of its tools {error}"
    if not specs:
        raise NoToolsError(
            f"The tools of {str(program)!r} cannot be listed: {why}. Write `tools` in "
            "each line of the tasks file, name functions with --tools-from, or judge "
            "by a command: --check-command."
        )
    return list({spec.name: spec for spec in specs}.values())


class _ProgramConversation(Conversation):
    def __init__(self, attempts: ProgramAttempts) -> None:
        self._attempts = attempts
        self._has_begun = False

    async def turn(self, message: str) -> str:
        """Run the program on the episode's task; return its answer."""
        if self._has_begun:
            raise UnsupportedError(
                "The user of this scenario goes on talking, and a program answers one "
                "request."
            )
        self._has_begun = True
        return await self._attempts.run(current_episode())


class ProgramAgent(AgentLoop):
    """Runs a program on each episode's task; its model calls go to the gateway."""

    way = "asked for at the address that the program's environment names"

    def __init__(self, program: ProgramCommand, blueprint: Blueprint) -> None:
        import aiohttp

        self.agent = program
        self._attempts = ProgramAttempts(
            program,
            blueprint.model,
            self._ask,
            memory_mb=blueprint.agent.program_memory_mb,
        )
        self._http = aiohttp.ClientSession(
            blueprint.gateway,
            connector=aiohttp.TCPConnector(limit=blueprint.connections),
            headers={
                "Authorization": f"Bearer {blueprint.api_key}",
                "Content-Type": "application/json",
            },
            timeout=aiohttp.ClientTimeout(total=None),
        )

    def converse(self) -> Conversation:
        """Return a conversation that can answer only one message."""
        return _ProgramConversation(self._attempts)

    async def _ask(
        self, episode: Episode, body: dict[str, Any], role: str
    ) -> dict[str, Any]:
        episode.begin_turn(role)
        episode.see(body.get("tools") or ())
        headers = {} if role == DEFAULT_AGENT else {"X-Agent-ID": role}
        url = f"{episode.path}/chat/completions"
        data = orjson.dumps(body)
        async with self._http.post(url, data=data, headers=headers) as response:
            raw = await response.read()
        episode.overflowed = False
        if response.status >= 400:
            episode.overflowed = CONTEXT_LENGTH.encode() in raw
            raise _refused(response.status, raw)
        episode.answered += 1
        found: dict[str, Any] = orjson.loads(raw)
        return found

    async def close(self) -> None:
        """End the idle program processes, and close the HTTP connections."""
        await self._attempts.close()
        await self._http.close()


def _refused(status: int, raw: bytes) -> ApiError:
    try:
        error = parse_json(raw.decode())["error"]
        return ApiError(status, error["message"], error["code"], error["type"])
    except (ValueError, KeyError, TypeError):
        text = raw.decode(errors="replace")
        return ApiError(
            status, f"The gateway answered {status}: {text:.300}", "gateway"
        )


class CommandAdapter(FrameworkAdapter):
    """Adapter for an agent that is a program in any language, with unchanged code."""

    name = "command"
    runs_tools = True

    def check(self) -> None:
        """Do nothing, because this framework needs no other packages."""

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        """Return an agent loop that runs the program in the settings."""
        refuse_graph_options(blueprint, "a program")
        self.check_reference(blueprint.agent.reference)
        assert blueprint.agent.reference is not None
        program = ProgramCommand.parse(blueprint.agent.reference).located()
        program.require()
        return ProgramAgent(program, blueprint)

    def check_reference(self, reference: str | None) -> None:
        """Raise UnsupportedError if no program is given; there is no default one."""
        if reference is None:
            raise UnsupportedError(
                "--framework command trains a program, and no program was given: add "
                '--command with the command that starts it, as in --command "node '
                'agent.js".'
            )

    def own_tools(self, found: Any) -> list[Tool]:
        """Return the tools that a program offers to the model in its first request.

        The program is started once, and ended after that request. The returned tools
        raise ToolError when called: only the program can run them.
        """
        self.require_agent(found, str(found))
        return [Tool(spec, _not_here) for spec in _tools_of(found, os.getcwd())]

    def require_agent(self, agent: Any, origin: str) -> None:
        """Raise UnsupportedError if an object is not a program."""
        if not isinstance(agent, ProgramCommand):
            raise UnsupportedError(f"{origin} is a {type(agent).__name__}, no program.")

    def concerns(self, agent: Any) -> list[str]:
        """Return a warning that the program's own tools really run in training."""
        really = (
            "Its own tools really run, again and again, with whatever arguments the "
            "model writes, and it reaches every machine that you do."
        )
        return [really]

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Raise UnsupportedError; the message says how to serve the program's model."""
        raise UnsupportedError(
            f"{trained.name} is a program. Serve its model with `agentgym serve "
            f"{trained.name} --port 8000`, and start the program with "
            "OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_MODEL="
            f"{trained.name.partition('@')[0]}."
        )


@functools.cache
def _tools_of(program: ProgramCommand, folder: str) -> list[ToolSpec]:
    return offered_tools(program)


def _not_here(**arguments: Any) -> str:
    raise ToolError("this tool is the program's own")
