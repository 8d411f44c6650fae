"""Episodes: run agents for verl's trainer, whose servers answer the model calls."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from agentgym.core.agent import AgentSource
from agentgym.core.config import TrainingConfig
from agentgym.core.files import scratch_folder
from agentgym.core.ledger import TRAINED
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.task import Task
from agentgym.core.trajectory import NO_REASON, Trajectory
from agentgym.engines.base import TrainingSequence
from agentgym.engines.lengths import paced_for_servers
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.errors import ConfigError, ContextLengthError, EngineError, RolloutError
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession, check_rollouts, worker_count
from agentgym.train.batch import BatchBuilder, trained_components
from agentgym.train.trainer import named_subject

# The method ``generate`` of verl's client of its inference servers.
Generate = Callable[..., Coroutine[Any, Any, Any]]
_SUBJECT = ("scenario", "agent", "command", "tasks", "check", "check_command")
_SETTINGS = {
    *(f"agent.{name}" for name in AgentSource.model_fields),
    *("scenario", "framework", "chat_template", "chat_template_kwargs", "thinking"),
    *("tool_format", "max_tokens", "train_roles", "train_tokens", "workers"),
    *("concurrency", "rollout_timeout_s", "max_attempts", "seed", "unsafe_local_exec"),
}
_GATHER_S = 0.02


def loop_config(model: str, given: Mapping[str, Any]) -> TrainingConfig:
    """Return the settings of an agent loop; all sampled tokens are trained by default.

    ``given`` has the arguments of :meth:`Trainer.train` that name the agent and its
    tasks, and settings of agents.
    """
    rest = dict(given)
    subject = named_subject(*(rest.pop(name, None) for name in _SUBJECT))
    settings = {"train_tokens": "all", **TrainingConfig.flat(rest), **subject}
    if unknown := sorted(settings.keys() - _SETTINGS):
        raise ConfigError(
            f"{', '.join(unknown)}: an agent loop of verl takes {', '.join(_SUBJECT)}, "
            f"{', '.join(sorted(_SETTINGS - {'scenario'}))}. Settings of training are "
            "verl's own."
        )
    config = TrainingConfig.create(model=model, engine="verl").replaced(**settings)
    return paced_for_servers(located(config))


class TokenPolicy(Policy):
    """A policy whose tokens are sampled by ``generate``, in the event loop ``loop``.

    A row of verl's has one prompt and one response, each with a maximum number of
    tokens. So an agent's prompts and answers may together be at most ``response``
    tokens longer than its shortest prompt, which may have ``prompt`` tokens.

    Attributes:
        rollouts: For each running rollout, by id: verl's sampling parameters, and the
            length of the shortest prompt in each session.
    """

    model_name = "policy"
    gives_forms = False  # verl's servers get no grammar

    def __init__(
        self,
        tokens: ChatTokens,
        generate: Generate,
        loop: asyncio.AbstractEventLoop,
        *,
        prompt: int,
        response: int,
    ) -> None:
        self.tokens = tokens
        self.rollouts: dict[str, tuple[Mapping[str, Any], dict[str, int]]] = {}
        self._generate, self._loop = generate, loop
        self._prompt, self._response = prompt, response

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer a request with tokens that verl's servers sample."""
        prompt, room = self.tokens.prompt(request)
        session, length = request.session, len(prompt.ids)
        sampling, known = self.rollouts[session.partition("/")[0]]
        known[session] = shortest = min(known.get(session, length), length)
        if shortest > self._prompt:
            raise EngineError(
                f"The agent's first prompt has {length} tokens, and verl takes "
                f"{self._prompt}. Raise data.max_prompt_length."
            )
        room = min(room, shortest + self._response - length)
        if room < 1:
            raise ContextLengthError(
                f"The prompt has {length} tokens, {length - shortest} more than the "
                f"agent's shortest, and data.max_response_length is {self._response}."
            )
        asked = self._generate(
            request_id=session,
            prompt_ids=prompt.ids,
            sampling_params={
                **sampling,
                "logprobs": True,
                "max_tokens": min(request.max_tokens, room),
            },
        )
        made = await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(asked, self._loop)
        )
        ids, logprobs = list(made.token_ids), list(made.log_probs or ())
        if not ids or len(ids) != len(logprobs) or made.stop_reason == "aborted":
            raise EngineError(
                f"verl's server returned {len(ids)} tokens and {len(logprobs)} "
                f"log-probabilities (stop reason {made.stop_reason!r})."
            )
        ended = self.tokens.ends(prompt, request.stop)
        stops = (at for at, token in enumerate(ids, 1) if ended(token))
        end = next(stops, None) if request.stop else None
        is_whole = end is not None or ids[-1] in self.tokens.stop_ids
        return self.tokens.result(
            request,
            prompt,
            ids[:end],
            logprobs[:end],
            reason="stop" if is_whole else "length",
            version=int(made.extra_fields.get("global_steps") or 0),
        )


class Episodes:
    """Runs episodes in worker processes, for all samples of one process of verl's."""

    def __init__(self, config: TrainingConfig, policy: TokenPolicy) -> None:
        scenario, _ = check_rollouts(config)
        self._policy = policy
        self.builder = BatchBuilder(
            config.algorithm,
            trained_components(config, scenario),
            policy.tokens.label,
            failure_cost=0.0,
            train_roles=config.train_roles,
        )
        self._waiting: list[tuple[RolloutRequest, Future[Trajectory]]] = []
        # Never closed: worker processes end with this one, and a later run removes the
        # folder.
        self._stack = ExitStack()
        folder = self._stack.enter_context(scratch_folder("verl"))
        session = RolloutSession(config, policy, folder, worker_count(config))
        self._session = self._stack.enter_context(session)

    async def run(
        self, task: Task, sampling: Mapping[str, Any], group: str, step: int
    ) -> Trajectory:
        """Run one episode and return its scored trajectory.

        Raises:
            RolloutError: All attempts crashed, or the model answered no call.
        """
        rollout_id, future = uuid4().hex, Future[Trajectory]()
        future.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        self._policy.rollouts[rollout_id] = sampling, {}
        request = RolloutRequest(rollout_id, task, True, group, step)
        self._waiting.append((request, future))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_later(_GATHER_S, self._start)
        try:
            made = await asyncio.wrap_future(future)
        finally:
            del self._policy.rollouts[rollout_id]
        if made.reward is None or not made.model_calls:
            reason = made.reason or NO_REASON
            raise RolloutError(f"The rollout of task {task.id} was dropped: {reason}")
        return made

    def _start(self) -> None:
        """Run all waiting requests as one batch, in a thread."""
        batch, self._waiting = self._waiting, []
        threading.Thread(target=self._attempt, args=(batch,), daemon=True).start()

    def _attempt(
        self, batch: Sequence[tuple[RolloutRequest, Future[Trajectory]]]
    ) -> None:
        futures = {request.rollout_id: future for request, future in batch}
        try:
            self._session.run(
                [request for request, _ in batch],
                lambda made: futures[made.rollout_id].set_result(made),
            )
            self._session.delete(futures)
        except BaseException as error:  # noqa: BLE001 - raised by those who wait
            for future in futures.values():
                if not future.done():
                    future.set_exception(error)


def sequences_of(
    made: Trajectory, builder: BatchBuilder
) -> tuple[list[TrainingSequence], list[str]]:
    """Return a rollout's sequences, the one with most trained tokens last.

    Calls share a sequence if each prompt begins with all tokens before it. The second
    list has the reason of each call that is not trained. If none is, the only sequence
    is the first call, without trained tokens.
    """
    sequences, used = builder.sequences(made)
    left_out = [bucket.reason for bucket in used if bucket != TRAINED]
    if sequences:
        return sorted(sequences, key=lambda each: len(each.trained)), left_out
    first = made.model_calls[0]
    ids = [*first.prompt_ids, *first.response_ids]
    return [TrainingSequence(first.agent, 0, ids, [], [first])], left_out
