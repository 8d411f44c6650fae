"""Worker: a process that runs many episodes at a time, with model calls to the gateway.

A worker is forked with a :class:`WorkerSpec` as JSON. It builds the agent once, waits
for rollouts from the gateway (without polling), and reports every episode's tool calls,
reward and end to the gateway. To the pool it reports that it is ready, a heartbeat each
second, and the rollout to blame if an episode blocks the process.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from dataclasses import asdict
from typing import Any

import orjson

from agentgym.core.background import ThreadsInContext, run_coroutine
from agentgym.core.collector import calm_collector
from agentgym.core.files import whole_text
from agentgym.core.openai import DEFAULT_AGENT, ApiError
from agentgym.core.registry import require_type
from agentgym.core.tools import Tool, ToolOutcome, ToolSpec
from agentgym.core.trajectory import (
    AGENT_CRASHED,
    NO_REASON,
    ModelCall,
    Reason,
    RolloutStatus,
    Step,
    ToolCall,
    Trajectory,
)
from agentgym.errors import AgentGymError, ProgramError, RolloutError, ToolExitError
from agentgym.integrations.base import AgentLoop, Blueprint
from agentgym.integrations.episode import Episode, episode_or_none
from agentgym.integrations.inner_reward import refuse_outside_episodes
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.integrations.run import ScenarioEnding, converse, reason_of, run_episode
from agentgym.integrations.witness import model_words, note_into, saw
from agentgym.models.forms import answers_any_object
from agentgym.models.links import Links
from agentgym.rollout.gateway.http import agent_key, is_own
from agentgym.rollout.record import read_task
from agentgym.rollout.store.records import unpack_calls
from agentgym.rollout.workers.assemble import assemble_steps
from agentgym.rollout.workers.loop_watch import LoopWatch
from agentgym.rollout.workers.pool import WorkerSpec
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import scenario_of
from agentgym.scenarios.tool_tasks.stubs import result_schema, stub_answer
from agentgym.scenarios.tool_tasks.unseen import UnseenSpec
from agentgym.scenarios.tool_tasks.user_code import unseen_tool
from agentgym.security.audit import audit_into
from agentgym.security.redaction import LogFilter, get_logger

logger = get_logger(__name__)


_CLIENTS = ("openai", "langchain_core")
_ANY = ("", "None", "0.0.0.0", "::")  # this machine, too


def keep_offline(allowed: Collection[str] = ()) -> None:
    """Refuse all later connections of this process to other machines.

    Those whose name is in ``allowed``, or ends in a dot and such a name, are made. Each
    refused one is noted, with whether a model client, e.g. OpenAI's, connected in a
    thread that does not belong to an episode.
    """
    find, addresses = socket.getaddrinfo, set(allowed)

    def is_allowed(name: str) -> bool:
        return name in addresses or any(name.endswith(f".{each}") for each in allowed)

    def found(host: Any, *args: Any, **named: Any) -> Any:
        answer = find(host, *args, **named)
        if is_allowed(_text(host)):
            addresses.update(str(each[4][0]) for each in answer)
        return answer

    def listen(event: str, values: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            host = values[0]
        elif event == "socket.connect" and isinstance(values[1], tuple):
            host = values[1][0]
        else:
            return
        name = _text(host)
        if name not in _ANY and not is_own(name) and not is_allowed(name):
            saw(host=name, outside=_is_outside())
            raise ConnectionRefusedError(
                f"{name} may not be reached in a trial: nothing has started yet"
            )

    if allowed:
        socket.getaddrinfo = found
    sys.addaudithook(listen)


def _text(host: Any) -> str:
    return host.decode(errors="replace") if isinstance(host, bytes) else str(host)


def _is_outside() -> bool:
    if episode_or_none() is not None:
        return False
    stack = traceback.walk_stack(None)
    names = (str(frame.f_globals.get("__name__")) for frame, _ in stack)
    return any(name.partition(".")[0] in _CLIENTS for name in names)


EXIT_BLOCKED = 70  # exit code of a worker whose event loop an episode blocked

# The gateway's HTTP status codes for a rollout or an attempt that is over.
_GIVEN_UP = (404, 409)

_WRONG = (
    ToolOutcome.UNKNOWN_TOOL,
    ToolOutcome.MALFORMED,
    ToolOutcome.INVALID_ARGUMENTS,
)

# Errors that code raises when it reads an unexpected JSON object.
_REFUSALS = (ValueError, LookupError, TypeError, AttributeError, AssertionError)
_OUTSIDE = (AgentGymError, OSError, MemoryError, ToolExitError)
# The OSErrors that a path written by the model can cause.
_OF_FILES = (
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_CONNECTING = ("openai", "httpx", "httpcore", "aiohttp", "requests", "urllib3")
# Id of the rollout that an asyncio task works for; tasks of an agent inherit it.
_ROLLOUT: ContextVar[str | None] = ContextVar("agentgym_rollout", default=None)

_CLAIM_WAIT_S = 20.0
_CONNECT_S = 30.0
_BEAT_S = 1.0
_MOST_STATE_BYTES = 200_000


class Worker:
    """Runs episodes until it is stopped, all with the same ``agent``."""

    def __init__(self, spec: WorkerSpec, scenario: Scenario, agent: AgentLoop) -> None:
        self._spec = spec
        self._scenario = scenario
        self._agent = agent
        self._ending = _GatewayEnding(scenario, self.get)
        self._running: set[asyncio.Task[None]] = set()
        self._headers = {"Authorization": f"Bearer {spec.api_key}"}
        self._links = Links(None, _CONNECT_S)

    @property
    def agent(self) -> dict[str, Any]:
        """Facts about the user's agent: its kind, and notes of its adapter."""
        agent = self._agent
        return {
            "kind": type(agent.agent).__name__,
            "way": agent.way,
            "notes": list(agent.notes),
            "members": {k: model_words(v) for k, v in agent.members.items()},
        }

    async def run(self) -> None:
        """Claim and run episodes until the gateway cannot be reached."""
        import aiohttp

        try:
            async with asyncio.TaskGroup() as episodes:
                await self._run_claimed(episodes)
        except* (aiohttp.ClientConnectionError, ConnectionError):
            logger.info("the gateway is gone; worker %s ends", self._spec.worker)
        finally:
            await self.close()

    async def close(self) -> None:
        """Release the agent, the scenario and the connections."""
        await self._agent.close()
        self._links.close()
        self._scenario.close()

    async def _run_claimed(self, episodes: asyncio.TaskGroup) -> None:
        while True:
            free = self._spec.concurrency - len(self._running)
            if free == 0:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
                continue
            worker = self._spec.worker
            body = {"n": free, "worker": worker, "wait_s": _CLAIM_WAIT_S}
            for rollout in await self.post("/api/rollouts/claim", body):
                episode = episodes.create_task(self._run_rollout(rollout))
                self._running.add(episode)
                episode.add_done_callback(self._running.discard)

    async def attempt(self, rollout: dict[str, Any], attempt: str) -> Trajectory:
        """Run one attempt of a rollout to its end, without reporting the result."""
        _ROLLOUT.set(rollout["rollout_id"])
        scenario = self._scenario
        episode = Episode(
            read_task(rollout["input"]),
            rollout_id=rollout["rollout_id"],
            attempt=attempt,
            mode="train" if rollout["is_train"] else "val",
            scenario=scenario.name,
            max_turns=scenario.max_turns,
            stub=self._stub,
        )
        return await run_episode(
            episode,
            lambda episode: converse(self._agent, episode),
            create_environment=scenario.create_environment,
            ending=self._ending,
            timeout_s=self._spec.timeout_s,
        )

    def _stub(self, name: str) -> Tool | None:
        """Return a tool with made-up results for an agent's own, if it is wanted."""
        how = self._spec.agent
        if how.own_tools != "stub" or name in how.allow_tools:
            return None
        tool = unseen_tool(UnseenSpec(name))

        def answer(**arguments: Any) -> str:
            return stub_answer(name, result_schema(tool), arguments, {})

        return Tool(tool.spec, answer)

    async def _run_rollout(self, rollout: dict[str, Any]) -> None:
        attempt = rollout["status"]["last_attempt_id"]
        path = attempt_path(rollout["rollout_id"], attempt)
        try:
            ended = await self.attempt(rollout, attempt)
        except RolloutError as error:  # a client has queued it
            wording = Reason(kind="no task", detail=str(error))
            await self._finish(path, {**_failed(wording), "retry": False})
            return
        try:
            if ended.status is RolloutStatus.DROPPED:
                report = _failed(ended.reason or NO_REASON)
            else:
                report = {"state": "succeeded", "events": events_of(ended)}
            await self._finish(path, report)
        except Exception as error:  # e.g. an event that is not JSON
            logger.warning("%s could not be ended", path, exc_info=True)
            detail = whole_text(str(error))
            refused = Reason(kind="crash: its end was refused", detail=detail)
            await self._finish(path, _failed(refused))

    async def _finish(self, path: str, report: dict[str, Any]) -> None:
        try:
            await self.post(f"{path}/finish", report)
        except ApiError as error:
            if error.status not in _GIVEN_UP:
                raise
            logger.info("%s was given up: %s", path, error)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a POST request to the gateway; return its parsed JSON answer."""
        return await self._ask("POST", path, json.dumps(body).encode())

    async def get(self, path: str) -> Any:
        """Send a GET request to the gateway; return its parsed JSON answer."""
        return await self._ask("GET", path)

    async def _ask(self, method: str, path: str, body: bytes = b"") -> Any:
        """Return the gateway's answer; raise an ApiError for an error status."""
        url = f"{self._spec.gateway}{path}"
        answer = await self._links.send(method, url, body, self._headers)
        if answer.status >= 400:
            said = f"{url} answered {answer.status}: {answer.text}"
            raise ApiError(answer.status, said, "gateway")
        return orjson.loads(answer.body)


class _GatewayEnding(ScenarioEnding):
    """Scores an episode, with the model calls that the gateway recorded."""

    def __init__(
        self, scenario: Scenario, get: Callable[[str], Awaitable[Any]]
    ) -> None:
        super().__init__(scenario)
        self._get = get
        self._answered_by_agent = scenario.live_tools()

    async def wrong_answer(self, episode: Episode, error: Exception) -> Reason | None:
        """Return a reason if the model's last answer made the agent crash, else None.

        The answer is wrong in three cases:

        - A tool call was required, and the answer was cut off or had no tool call.
        - A JSON object was requested without a schema, and the agent's own code refused
          the object of the answer.
        - The answer had a call of an unknown tool, or a call with wrong arguments.

        Any other crash of the agent's own code after an answer also counts as the
        model's failure: a dropped attempt would leave only those that went well. An
        error of a connection, or before the first answer, is not the model's.
        """
        calls = await self._calls(episode)
        if not calls:
            return None
        last = calls[-1]
        detail: str | None
        if last.wants_call and last.finish_reason == "length":
            detail = "max_tokens cut the structured answer"
        elif last.wants_call and not last.tool_calls:
            detail = "a call was asked for, and none was made"
        elif isinstance(error, _REFUSALS) and answers_any_object(last):
            given = last.tool_calls[0].arguments
            detail = f"the agent's own code refused the JSON object {given:.120}"
        else:
            made = assemble_steps([last], [], _specs(episode))
            wrong = (c for c in made if isinstance(c, ToolCall) and c.outcome in _WRONG)
            detail = next((call.result for call in wrong), None)
        if detail is not None:
            kind = "wrong form" if last.wants_call else "wrong call"
            return Reason(kind=kind, detail=detail)
        if episode.turns > episode.answered or _is_from_outside(error):
            return None
        crash = reason_of(error)
        detail = f"{crash.kind.removeprefix('crash: ')}: {crash.detail}"
        return Reason(kind=AGENT_CRASHED, detail=detail)

    async def _calls(self, episode: Episode) -> list[ModelCall]:
        path = attempt_path(episode.rollout_id, episode.attempt)
        return unpack_calls(await self._get(f"{path}/calls"))

    async def steps(self, episode: Episode) -> list[Step]:
        made = await self._calls(episode)
        if not made and episode.cut is None:
            raise RolloutError(
                "the agent ended without calling the model through the gateway; "
                "its model was not replaced"
            )
        return assemble_steps(
            made,
            episode.tool_calls,
            _specs(episode),
            came_to_end=episode.cut is None and not episode.stopped,
            answered_by_agent=self._answered_by_agent,
        )


def _is_from_outside(error: BaseException | None) -> bool:
    """Return whether an error, or a cause of it, is not one of the agent's own code."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        library = type(error).__module__.partition(".")[0]
        if isinstance(error, ProgramError):
            return not error.is_crash
        is_outside = isinstance(error, _OUTSIDE) and not isinstance(error, _OF_FILES)
        if is_outside or library in _CONNECTING:
            return True
        error = error.__cause__ or error.__context__
    return False


def _specs(episode: Episode) -> dict[str, ToolSpec]:
    return {name: tool.spec for name, tool in episode.tools.items()}


def attempt_path(rollout_id: str, attempt: str) -> str:
    """Return the path of an attempt in the gateway's API."""
    return f"/api/rollouts/{rollout_id}/attempt/{attempt}"


def events_of(ended: Trajectory) -> list[dict[str, Any]]:
    """Return the events to report for an episode: its tool calls, then its reward."""
    events = [
        {"event_type": "tool_call", "data": call.model_dump(mode="json")}
        for call in ended.get_tool_calls()
    ]
    inner = [call.rewards for call in ended.model_calls]
    speakers = [call.agent for call in ended.model_calls]
    counts = [call.token_counts for call in ended.model_calls]
    tokens = [count[1] for count in counts if count is not None]
    scored = {
        "value": ended.reward,
        "source": "scenario",
        "reason": ended.reason and ended.reason.model_dump(),
        "score": asdict(ended.score),
        "duration_s": ended.duration_s,
        **({"inner": inner} if any(inner) else {}),
        **({"speakers": speakers} if set(speakers) - {DEFAULT_AGENT} else {}),
        **({"response_tokens": tokens} if len(tokens) == len(counts) else {}),
        **_end_of(ended),
    }
    return [*events, {"event_type": "reward", "data": scored}]


def _end_of(ended: Trajectory) -> dict[str, Any]:
    """Return the episode's changed files and end state; {} if they are too large."""
    found = {"changed_files": ended.changed_files, "end_state": ended.end_state}
    kept = {name: value for name, value in found.items() if value}
    text = orjson.dumps(kept, default=str, option=orjson.OPT_NON_STR_KEYS)
    made: dict[str, Any] = orjson.loads(text) if len(text) <= _MOST_STATE_BYTES else {}
    return made


def _failed(reason: Reason) -> dict[str, Any]:
    return {"state": "failed", "reason": reason.model_dump()}


def limit_memory(most_mb: int) -> None:
    """Limit the process to ``most_mb`` MiB; a larger allocation raises an error."""
    import resource

    limit = most_mb * 2**20
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit <= hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


class ControlChannel:
    """Sends messages to the pool, over the pipe that was the standard output.

    The standard output is redirected to standard error. So text that an agent, a tool
    or a reward prints cannot be mistaken for a message.
    """

    def __init__(self) -> None:
        self._pipe = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def say(self, **message: Any) -> None:
        """Send the pool a message, as a line of JSON. Callable from any thread."""
        self._pipe.write(orjson.dumps(message) + b"\n")
        self._pipe.flush()


def _no_exit(status: object = None) -> None:
    """Replaces ``sys.exit``: raise an error, as other episodes share the process."""
    raise RuntimeError(f"the agent called sys.exit({status!r})")


def make_worker(spec: WorkerSpec) -> Worker:
    """Build a worker with its scenario and agent; an event loop must be running."""
    scenario = scenario_of(spec.scenario, spec.groups)
    scenario.unsafe_local_exec = spec.unsafe_local_exec
    blueprint = Blueprint(
        system_prompt=scenario.system_prompt(),
        tools=scenario.tools(),
        max_turns=scenario.max_turns,
        gateway=spec.gateway,
        api_key=agent_key(spec.api_key),
        model=spec.model,
        connections=spec.concurrency,
        agent=spec.agent,
    )
    if spec.audit is not None:
        audit_into(spec.audit, private=spec.private)
    if spec.witness is not None:
        note_into(spec.witness)
        keep_offline(spec.agent.allow_host)
    agent = require_type(
        FRAMEWORKS.get(spec.framework).create_environment(blueprint),
        AgentLoop,
        f"create_environment() of the framework {spec.framework!r}",
    )
    return Worker(spec, scenario, agent)


async def _serve(spec: WorkerSpec, control: ControlChannel) -> None:
    worker = make_worker(spec)
    loop = asyncio.get_running_loop()
    running = asyncio.current_task()
    assert running is not None
    loop.add_signal_handler(signal.SIGTERM, running.cancel)
    loop.set_default_executor(ThreadsInContext())

    def blocked() -> None:
        task = asyncio.current_task(loop)
        control.say(blocked=None if task is None else task.get_context().get(_ROLLOUT))
        os._exit(EXIT_BLOCKED)

    try:
        with (
            calm_collector(),
            LoopWatch(
                spec.timeout_s,
                blocked=blocked,
                turned=lambda: control.say(beat=True),
                every_s=_BEAT_S,
            ),
        ):
            control.say(ready=True, agent=worker.agent)
            await worker.run()
    except asyncio.CancelledError:
        logger.info("worker %s was stopped", spec.worker)


def main(argument: str) -> int:
    """Run a worker, whose WorkerSpec is ``argument`` as JSON; return the exit code."""
    control = ControlChannel()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogFilter())
    logging.getLogger("agentgym.integrations").setLevel(logging.INFO)  # log crashes
    spec = WorkerSpec.model_validate_json(argument)
    limit_memory(spec.memory_mb)
    refuse_outside_episodes()
    sys.exit = _no_exit  # type: ignore[assignment]
    try:
        run_coroutine(_serve(spec, control))
    except AgentGymError as error:
        control.say(error=str(error), kind=type(error).__name__)
        return 1
    return 0
