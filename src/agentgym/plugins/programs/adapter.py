"""CommandAdapter: train programs in any language, ``--command "node agent.js"``."""

from typing import Any

import orjson

from agentgym.core.agent import Trained
from agentgym.core.files import parse_json
from agentgym.core.openai import DEFAULT_AGENT, ApiError
from agentgym.errors import UnsupportedError
from agentgym.integrations.base import (
    AgentLoop,
    Blueprint,
    Conversation,
    FrameworkAdapter,
    refuse_graph_options,
)
from agentgym.integrations.episode import Episode, current_episode
from agentgym.integrations.transport import EpisodePosts
from agentgym.plugins.programs.attempt import ProgramAttempts
from agentgym.programs.program import ProgramCommand


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
    notes = (
        (
            "Its own tools really run, again and again, with whatever arguments the "
            "model writes, and it reaches every machine that you do."
        ),
    )

    def __init__(self, program: ProgramCommand, blueprint: Blueprint) -> None:
        self.agent = program
        self._attempts = ProgramAttempts(
            program,
            blueprint.model,
            self._ask,
            memory_mb=blueprint.agent.program_memory_mb,
        )
        self._posts = EpisodePosts(blueprint)

    def converse(self) -> Conversation:
        """Return a conversation that can answer only one message."""
        return _ProgramConversation(self._attempts)

    async def _ask(
        self, episode: Episode, body: dict[str, Any], role: str
    ) -> dict[str, Any]:
        episode.begin_turn(role)
        speaker = None if role == DEFAULT_AGENT else role
        data, path = orjson.dumps(body), "/chat/completions"
        answer = await self._posts.send(episode, path, data, speaker)
        if not answer.is_success:
            raise _refused(answer.status, answer.body)
        found: dict[str, Any] = orjson.loads(answer.body)
        return found

    async def close(self) -> None:
        """End the idle program processes, and close the HTTP connections."""
        await self._attempts.close()
        self._posts.close()


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

    def require_agent(self, agent: Any, origin: str) -> None:
        """Raise UnsupportedError if an object is not a program."""
        if not isinstance(agent, ProgramCommand):
            raise UnsupportedError(f"{origin} is a {type(agent).__name__}, no program.")

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        """Raise UnsupportedError; the message says how to serve the program's model."""
        raise UnsupportedError(
            f"{trained.name} is a program. Serve its model with `agentgym serve "
            f"{trained.name} --port 8000`, and start the program with "
            "OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_MODEL="
            f"{trained.name.partition('@')[0]}."
        )
