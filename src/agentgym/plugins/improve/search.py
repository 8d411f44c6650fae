"""Bench: attempt tasks with one model; search: better prompts, found by attempts.

The search for prompts and tool descriptions is GEPA (arXiv:2507.19457).

A reflection model reads attempts at a few training tasks, and writes a new text for a
system prompt or for the description of a tool. If the text does better on these tasks,
it is measured on other training tasks. No validation or held-out task is used.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agentgym.core.background import in_background
from agentgym.core.config import TrainingConfig
from agentgym.core.files import scratch_folder
from agentgym.core.openai import Completion
from agentgym.core.policy import Policy, RegisteredPolicy, ServedPolicy
from agentgym.core.prices import Prices
from agentgym.core.task import Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.lengths import paced
from agentgym.engines.registry import create_engine, paced_settings
from agentgym.errors import AgentGymError, ModelCallError, ProviderError, RolloutError
from agentgym.evaluate import events
from agentgym.evaluate.attempts import attempt
from agentgym.evaluate.metrics import Metrics
from agentgym.models.endpoint import EndpointLlm
from agentgym.models.reference import is_remote, resolve_model
from agentgym.rollout.gateway.metered import Meter, MeteredEndpoint, tokens_of
from agentgym.rollout.prompt_overrides import NewText, Wording, system_text
from agentgym.rollout.session import RolloutSession, worker_count
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import held_out_sets, needs_of
from agentgym.security.audit import default_log
from agentgym.security.redaction import Redactor, get_logger

if TYPE_CHECKING:
    from gepa.core.adapter import EvaluationBatch, GEPAAdapter
    from gepa.core.result import GEPAResult

logger = get_logger(__name__)

MOST_ANSWER = 4_096
"""Most tokens of the reflection model's answer, with its reasoning."""
MINIBATCH = 3
"""Number of attempts that the reflection model reads at a time."""
_PROMPT, _TOOL = "system prompt ", "description of the tool "
_OF_TOOL = """An agent has a tool with this description:
```
<curr_param>
```

These are attempts of the agent at tasks, its calls, and the mistakes:
```
<side_info>
```

Write a better description of this tool: when to call it and when not, and how its
arguments are to be written. Say nothing about other tools, and copy no values of these
tasks. Give the description alone, within ``` blocks."""
_SHOWN = 2_000
_PARTIAL = 0.5


IN_FLIGHT = 8


@contextmanager
def open_bench(
    config: TrainingConfig, meter: Meter, progress: events.Observer
) -> Iterator["Bench"]:
    """Load the model, or connect to its server; yield a Bench, which runs the agent.

    The settings ``config`` must have absolute paths.

    ``meter`` limits and counts the tokens and the cost of a model on a provider's
    server; a model on this machine does not use it.
    """
    scenario, own = get_scenario(config.scenario), config
    policy: Policy | ServedPolicy | RegisteredPolicy | MeteredEndpoint
    with ExitStack() as stack:
        if is_remote(config.model):
            config = paced(config, in_flight=IN_FLIGHT)
            meter.most_tokens = config.answer_tokens
            policy = MeteredEndpoint.of(resolve_model(config.model), meter)
        else:
            config = paced_settings(config)
            engine = create_engine(config)
            stack.callback(engine.close)
            stack.enter_context(engine.sampling())
            policy = engine.policy
        folder = stack.enter_context(scratch_folder("improve"))
        session = RolloutSession(
            config, policy, folder, worker_count(config), audit=default_log()
        )
        yield Bench(own, scenario, stack.enter_context(session), progress)


@dataclass(frozen=True)
class Bench:
    """Runs rollouts of one agent with one model."""

    config: TrainingConfig
    scenario: Scenario
    session: RolloutSession
    progress: events.Observer

    def held_out(
        self, wording: Wording, prices: Prices
    ) -> tuple[Metrics, list[Trajectory]]:
        """Measure the agent on the main held-out tasks; return the rollouts, too.

        Other held-out sets, e.g. of harder tasks, are not measured. ``wording`` has
        prompts and tool descriptions to send instead of the agent's own. Raises the
        errors of :meth:`attempt`.
        """
        config = self.config
        sets = held_out_sets(self.scenario, config.seed, config.test_tasks)
        name, tasks = next(iter(sets.items()))
        k = config.eval_samples
        made = self.attempt(
            f"before {name}", tasks, wording, samples=k, phase="evaluation"
        )
        metrics = Metrics.of(
            made,
            k=k,
            prices=prices,
            needs=needs_of(self.scenario, tasks),
            replaced=config.token_prices,
        )
        return metrics, made

    def attempt(
        self,
        name: str,
        tasks: Sequence[Task],
        wording: Wording,
        *,
        samples: int = 1,
        phase: str = "search",
    ) -> list[Trajectory]:
        """Attempt each task ``samples`` times."""
        self.session.reword(wording)
        self.progress(events.PhaseStarted(phase, len(tasks) * samples))
        done = attempt(
            self.session,
            {name: tasks},
            samples,
            lambda _: self.progress(events.RolloutDone()),
        )
        return done[name]


class Reflector:
    """Sends requests to the reflection model (which writes new texts for an agent).

    ``problem`` says why no more requests are sent; empty as long as requests can be
    sent.
    """

    def __init__(self, endpoint: MeteredEndpoint) -> None:
        self._endpoint = endpoint
        self._meter: Meter = endpoint.meter
        self._meter.most_tokens = MOST_ANSWER
        self.problem = ""
        self.asked = 0

    def __call__(self, prompt: str | list[dict[str, Any]]) -> str:
        """Return the model's answer; raise AgentGymError once the model has failed."""
        if self.problem:  # GEPA asks again after a failed answer
            raise ProviderError(self.problem)
        messages = prompt
        if isinstance(prompt, str):
            text = Redactor.of_environment().written(prompt)
            messages = [{"role": "user", "content": text}]
        options = {self._endpoint.limit: MOST_ANSWER}
        bound = self._meter.bound(orjson.dumps([messages, options]))
        if not self._meter.reserve(bound):
            self.problem = self._meter.refusal
            raise ProviderError(self.problem)
        tokens: tuple[int, int] | None = None
        try:
            self.asked += 1
            answer = in_background(self._ask(messages, options))
            tokens = tokens_of(answer.get("usage"))
            text = Completion(answer).choice["message"]["content"]
            if not isinstance(text, str) or not text.strip():
                raise ModelCallError(
                    "The reflection model gave an answer without text."
                )
            return text
        except (AgentGymError, KeyError, TypeError) as error:
            self.problem = f"The reflection model failed: {error}"
            if isinstance(error, ProviderError):  # the key was refused: nothing is paid
                tokens = (0, 0)
            raise
        finally:
            self._meter.settle(bound, tokens)

    async def _ask(self, messages: Any, options: dict[str, Any]) -> dict[str, Any]:
        llm = EndpointLlm(self._endpoint, on_retry=_only_refused)
        try:
            return await llm(messages, **options)
        finally:
            await llm.close()


def _only_refused(why: str) -> None:
    """Raise ModelCallError unless the server answered with an error status.

    Called before a retry. If there was no such answer, the provider may have billed the
    request, and a retry could be billed again.
    """
    if ": status " not in why:
        raise ModelCallError(why)


class Parts:
    """The agent's texts that can be replaced: system prompts and tool descriptions.

    They are read from ``made``, attempts of the agent.
    """

    def __init__(self, made: Sequence[Trajectory]) -> None:
        self.prompts, self.tools = _prompts(made), _tools(made)

    @property
    def texts(self) -> dict[str, str]:
        """The agent's own texts; each has a name, such as ``system prompt 1``."""
        prompts = {f"{_PROMPT}{n + 1}": text for n, text in enumerate(self.prompts)}
        return prompts | {f"{_TOOL}{name}": text for name, text in self.tools.items()}

    def wording(self, texts: Mapping[str, str]) -> Wording:
        """Return new texts as replacements of the agent's own; leave out equal ones."""
        own = self.texts
        new = {name: text for name, text in texts.items() if text != own.get(name)}
        return Wording(
            prompts=tuple(
                NewText(before=own[name], after=text)
                for name, text in new.items()
                if name.startswith(_PROMPT)
            ),
            tools={
                name.removeprefix(_TOOL): NewText(before=own[name], after=text)
                for name, text in new.items()
                if name.startswith(_TOOL)
            },
        )


def _prompts(made: Sequence[Trajectory]) -> list[str]:
    """Return the system prompts that do not differ from task to task."""
    tasks: dict[str, set[str]] = defaultdict(set)
    for trajectory in made:
        for call in trajectory.model_calls:
            found = [
                text for m in call.messages if (text := system_text(m)) is not None
            ]
            for text in found or [""]:
                tasks[text].add(trajectory.task_id)
    every = {trajectory.task_id for trajectory in made}
    return [text for text, of in tasks.items() if len(of) > 1 or len(every) == 1]


def _tools(made: Sequence[Trajectory]) -> dict[str, str]:
    """Return each tool's description, if it is the same in all requests."""
    found: dict[str, set[str]] = defaultdict(set)
    for trajectory in made:
        for call in trajectory.model_calls:
            for tool in call.tools:
                function = tool["function"]
                found[function["name"]].add(function.get("description") or "")
    return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}


class _Adapter:
    """GEPA's adapter: scores texts by attempts, and shows attempts to the model."""

    propose_new_texts: Any = None

    def __init__(self, bench: Bench, parts: Parts, reflector: Reflector) -> None:
        self._bench = bench
        self._parts = parts
        self._reflector = reflector
        self._count = 0

    def evaluate(
        self, batch: list[Task], candidate: dict[str, str], capture_traces: bool = False
    ) -> "EvaluationBatch[Any, None]":
        """Attempt the tasks with the texts of ``candidate``, and return the scores.

        All scores are 0 if no attempt could be scored.
        """
        from gepa.core.adapter import EvaluationBatch

        made: list[Trajectory] = []
        if not self._reflector.problem:
            self._count += 1
            name = f"search-{self._count:04d}"
            try:
                wording = self._parts.wording(candidate)
                made = self._bench.attempt(name, batch, wording)
            except ProviderError as error:
                self._reflector.problem = str(error)
            except RolloutError as error:  # with these texts every attempt failed
                logger.info("%s: %s", name, error)
        scores = [score_of(each) for each in made] or [0.0] * len(batch)
        none: list[Trajectory | None] = [None] * len(batch)
        pairs = list(zip(batch, made or none, strict=True))
        return EvaluationBatch(
            outputs=[None] * len(batch), scores=scores, trajectories=pairs
        )

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: "EvaluationBatch[Any, None]",
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return, for each text, the attempts to show to the model that improves it."""
        pairs = eval_batch.trajectories or ()
        scenario = self._bench.scenario
        shown = [_example(scenario, task, made) for task, made in pairs if made]
        return dict.fromkeys(components_to_update, shown)


def score_of(made: Trajectory) -> float:
    """Return 1 for a success, else half of the share of calls with right arguments."""
    if made.success:
        return 1.0
    return _PARTIAL * (made.right_arguments or 0.0)


def _example(scenario: Scenario, task: Task, made: Trajectory) -> dict[str, Any]:
    """Return an attempt's request, calls, answer and mistakes as texts."""
    calls = made.model_calls
    asked = [m for m in (calls[0].messages if calls else ()) if m.get("role") == "user"]
    done = [
        f"{call.name}({json.dumps(call.arguments, default=str)}) -> {call.result[:300]}"
        for call in made.get_tool_calls()
    ]
    feedback = "It succeeded." if made.success else f"It failed: {made.reason}."
    needed = scenario.needed_calls(task)
    if needed is not None:
        wanted = [f"{each.tool}({json.dumps(dict(each.arguments))})" for each in needed]
        feedback += f" The calls that it needs: {'; '.join(wanted) or 'none'}."
    return {
        "Inputs": str(asked[0].get("content") if asked else "")[:_SHOWN],
        "Generated Outputs": {
            "calls": "\n".join(done)[:_SHOWN] or "none",
            "answer": (made.answer or "")[:_SHOWN],
        },
        "Feedback": feedback[:_SHOWN],
    }


class _Log:
    """Writes GEPA's messages to AgentGym's log."""

    def log(self, message: str) -> None:
        logger.debug("%s", message)


def search(
    bench: Bench,
    parts: Parts,
    tasks: Sequence[Task],
    reflector: Reflector,
    *,
    rollouts: int,
    seed: int,
) -> Wording:
    """Search for the prompts and tool descriptions that do best on training tasks.

    To write a text, the model of ``reflector`` reads attempts at one half of the tasks.
    Texts are compared on the other half; a single task is in both. The search ends
    after ``rollouts`` rollouts, or when the model fails. Returns the best texts so far;
    empty if none did better than the agent's own.
    """
    from gepa.api import optimize

    half = (len(tasks) + 1) // 2
    own = parts.texts
    adapter: GEPAAdapter[Task, Any, None] = _Adapter(bench, parts, reflector)
    found: GEPAResult[None, Any] = optimize(
        seed_candidate=own,
        trainset=list(tasks[:half]),
        valset=list(tasks[half:] or tasks),
        adapter=adapter,
        reflection_lm=reflector,
        reflection_minibatch_size=MINIBATCH,
        reflection_prompt_template={n: _OF_TOOL for n in own if n.startswith(_TOOL)},
        max_metric_calls=rollouts,
        stop_callbacks=lambda state: bool(reflector.problem),
        logger=_Log(),
        seed=seed,
    )
    best = found.candidates[found.best_idx]
    return parts.wording(best) if found.best_idx else Wording()
