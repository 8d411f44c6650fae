"""τ²-bench (airline, retail, telecom) as a scenario, from the user's own checkout.

Its tools, its user simulator and its evaluator run as they are; nothing of it is part
of AgentGym. https://github.com/sierra-research/tau2-bench
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolSpec
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import NotFoundError, ToolError, UsageError
from agentgym.models.reference import is_remote
from agentgym.scenarios.base import Environment, Scenario, own_environment
from agentgym.scenarios.schemas import spec_of_openai

DOMAINS = ("airline", "retail", "telecom")


class Tau2:
    """Imports a checkout's modules; ``folder`` is its root."""

    def __init__(self, folder: Path) -> None:
        folder = folder.expanduser().resolve()
        for name in ("src/tau2", "data/tau2/domains"):
            if not (folder / name).is_dir():
                raise UsageError(
                    f"{folder} is not a checkout of tau2-bench: it has no {name}."
                )
        source = str(folder / "src")
        if source not in sys.path:
            sys.path.insert(0, source)
        os.environ.setdefault("TAU2_DATA_DIR", str(folder / "data"))
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no request
        try:
            import_module("loguru").logger.disable("tau2")
            self.registry: Any = self.module("registry").registry
        except ImportError as error:
            raise UsageError(
                f"tau2-bench in {folder} cannot be imported: {error}. Install its "
                f"packages into this environment: uv pip install -e {folder}"
            ) from None
        logging.getLogger("LiteLLM").setLevel(logging.ERROR)

    def module(self, name: str) -> Any:
        """Import ``tau2.NAME``."""
        return import_module(f"tau2.{name}")

    def tasks(self, domain: str) -> dict[str, Any]:
        """Return the tasks of a domain by id."""
        try:
            found = self.registry.get_tasks_loader(domain)(None)
        except (OSError, ValueError) as error:
            raise UsageError(f"The tasks of {domain} cannot be read: {error}") from None
        return {task.id: task for task in found}

    def splits(self, domain: str) -> dict[str, list[str]]:
        """Return the ids of a domain's splits, e.g. ``train``, by name."""
        load = self.registry.get_task_splits_loader(domain)
        return {} if load is None else dict(load())

    def environment(self, domain: str, task: Any) -> Any:
        """Return a domain's environment in the initial state of a task."""
        made = self.registry.get_env_constructor(domain)()
        state = task.initial_state
        if state is not None:
            made.set_state(
                initialization_data=state.initialization_data,
                initialization_actions=state.initialization_actions,
                message_history=list(state.message_history or ()),
            )
        made.sync_tools()
        return made

    def user(self, task: Any, environment: Any, model: str) -> Any:
        """Return τ²'s user simulator for a task, played by a model."""
        simulator = self.module("user.user_simulator").UserSimulator
        tools = environment.get_user_tools() if environment.user_tools else None
        name, options = litellm_model(model)
        return simulator(
            llm=name,
            instructions=str(task.user_scenario),
            tools=tools,
            llm_args=options,
        )

    def verdict(self, domain: str, task: Any, messages: list[Any], end: str) -> Any:
        """Return the reward of τ²'s own evaluator for an ended conversation."""
        evaluator = self.module("evaluator.evaluator")
        simulation = self.module("data_model.simulation")
        now = self.module("utils.utils").get_now()
        run = simulation.SimulationRun(
            id=task.id,
            task_id=task.id,
            start_time=now,
            end_time=now,
            duration=0.0,
            termination_reason=simulation.TerminationReason(end),
            messages=messages,
        )
        every = evaluator.EvaluationType.ALL
        return evaluator.evaluate_simulation(run, task, every, False, domain)


def litellm_model(model: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options with which litellm asks a model.

    ``openai:gpt-4.1`` is ``openai/gpt-4.1``; an address ``http://host/v1#MODEL`` is a
    server of OpenAI's API.
    """
    if "://" in model:
        address, _, name = model.partition("#")
        key = os.environ.get("AGENTGYM_API_KEY") or "none"
        return f"openai/{name or 'default'}", {"api_base": address, "api_key": key}
    if not is_remote(model):
        raise UsageError(
            f"--user-model {model}: the user is played by a provider's model, as in "
            "openai:gpt-4.1, or by a server, http://host:8000/v1#MODEL."
        )
    return model.replace(":", "/", 1), {}


OPENING = "Hello."
"""The first message. The agent greets; then the simulated user states its request."""
_VALIDATION = 5  # one of so many training tasks is for validation
_USER_STOP, _AGENT_STOP, _MAX_STEPS = "user_stop", "agent_stop", "max_steps"
_ERROR = "Error: "
_IN_WORDS = "NL_ASSERTION"
_MOST_USER_CALLS = 20


class Tau2Environment(Environment):
    """One conversation: a domain's database, its user, and the messages so far.

    Attributes:
        messages: The conversation as τ² records it, for its evaluator.
        user: τ²'s user simulator, or another object with its methods.
    """

    waits = True

    def __init__(self, tau2: Tau2, domain: str, task: Any, user: Any) -> None:
        self._types = tau2.module("data_model.message")
        self.domain = domain
        self.inner = tau2.environment(domain, task)
        self.task = task
        self.messages: list[Any] = []
        self.end = _AGENT_STOP
        self.user = user(self.inner)
        self._state = self.user.get_init_state()
        self._calls = 0

    def tools(self) -> list[Tool]:
        """Return the domain's tools of the agent."""
        return [
            Tool(spec, self._caller(spec.name))
            for spec in map(_spec, self.inner.get_tools())
        ]

    def _caller(self, name: str) -> Callable[..., str]:
        def call(**arguments: Any) -> str:
            self._calls += 1
            made = self._types.ToolCall(
                id=f"call-{self._calls}", name=name, arguments=arguments
            )
            said = self._types.AssistantMessage(role="assistant", tool_calls=[made])
            answer = self.inner.get_response(made)
            self.messages += [said, answer]
            if answer.error:
                raise ToolError(str(answer.content).removeprefix(_ERROR))
            return str(answer.content)

        return call

    def user_reply(self, message: str) -> str | None:
        """Return the simulated user's reply to an answer; None if it is done."""
        said = self._types.AssistantMessage(role="assistant", content=message or "...")
        self.messages.append(said)
        heard: Any = said
        for _ in range(_MOST_USER_CALLS):
            reply, self._state = self.user.generate_next_message(heard, self._state)
            self.messages.append(reply)
            if not reply.is_tool_call():
                if self.user.is_stop(reply):
                    self.end = _USER_STOP
                    return None
                return str(reply.content)
            answers = [self.inner.get_response(call) for call in reply.tool_calls]
            self.messages += answers
            heard = answers[0]
            if len(answers) > 1:
                many = self._types.MultiToolMessage
                heard = many(role="tool", tool_messages=answers)
        self.end = _MAX_STEPS
        return None

    def end_state(self) -> dict[str, Any]:
        """Return the conversation, for people to read."""
        said = [message.model_dump(mode="json") for message in self.messages]
        keys = ("role", "content", "tool_calls")
        return {"conversation": [{key: each.get(key) for key in keys} for each in said]}


class Tau2Scenario(Scenario):
    """Customer service in airline, retail and telecom, from a checkout of τ²-bench."""

    name = "tau2"
    description = "Customer service with a simulated user: tau2-bench, --data CHECKOUT."
    difficulty = "advanced"
    estimated_time = "for real models; minutes to hours, by the models"
    reward_range: ClassVar = (0.0, 1.0)
    max_turns = 30
    options: ClassVar = ("data", "categories")
    train_tokens = "calls"

    def __init__(self, data: str = "", categories: str = "airline") -> None:
        if not data:
            raise UsageError("tau2 needs a checkout of tau2-bench: give --data FOLDER.")
        if categories not in DOMAINS:
            raise NotFoundError("domain of tau2", categories, DOMAINS)
        self.user_model: str | None = None
        self.domain = categories
        self.tau2 = Tau2(Path(data))
        self._found = self.tau2.tasks(categories)

    def system_prompt(self) -> str:
        """Return the prompt of τ²'s own agent, with the domain's policy."""
        agent = self.tau2.module("agent.llm_agent")
        prompt: str = agent.SYSTEM_PROMPT.format(
            agent_instruction=agent.AGENT_INSTRUCTION, domain_policy=self._bare.policy
        )
        return prompt

    def tools(self) -> list[ToolSpec]:
        """Return the domain's tools of the agent."""
        return list(map(_spec, self._bare.get_tools()))

    @cached_property
    def _bare(self) -> Any:
        return self.tau2.registry.get_env_constructor(self.domain)()

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return tasks of τ²'s splits; of its training tasks, each fifth validates."""
        return [
            Task(
                id=name,
                split=split,
                seed=seed,
                family=self.domain,
                level=3,
                instruction=OPENING,
            )
            for name in self._of_split(split)
        ][:count]

    def _of_split(self, split: Split) -> Iterator[str]:
        splits = self.tau2.splits(self.domain)
        test = [name for name in splits.get("test", ()) if name in self._found]
        test = test or list(self._found)[::3]  # a checkout with some of the tasks
        if split is Split.TEST:
            yield from test
            return
        rest = [name for name in self._found if name not in test]
        for place, name in enumerate(rest):
            if (place % _VALIDATION == 0) == (split is Split.VALIDATION):
                yield name

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return the agent's calls of τ²'s solution; None if the task names none."""
        criteria = self._found[task.id].evaluation_criteria
        actions = [] if criteria is None else criteria.actions or []
        mine = [each for each in actions if each.requestor == "assistant"]
        return [NeededCall(each.name, each.arguments) for each in mine] or None

    def create_environment(self, task: Task) -> Environment:
        """Return a new conversation, whose user has not said anything yet."""
        found, model = self._found[task.id], self.user_model
        if model is None:
            raise UsageError(
                "A user of tau2 is played by a model: give --user-model, as in "
                "--user-model openai:gpt-4.1."
            )
        return Tau2Environment(
            self.tau2,
            self.domain,
            found,
            lambda inner: self.tau2.user(found, inner, model),
        )

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Return the verdict of τ²'s own evaluator."""
        mine = own_environment(Tau2Environment, environment)
        end = mine.end if trajectory.reason is None else _MAX_STEPS
        found = self.tau2.verdict(self.domain, mine.task, mine.messages, end)
        parts = {
            str(getattr(kind, "value", kind)).lower(): float(value)
            for kind, value in (found.reward_breakdown or {}).items()
        }
        value = float(found.reward)
        parts["rest"] = value - sum(parts.values())
        return Reward(value, value >= 1.0, parts)

    def notes(self) -> list[str]:
        """Return a sentence if verdicts need a judge model."""
        criteria = [task.evaluation_criteria for task in self._found.values()]
        bases = [
            {kind.value for kind in each.reward_basis} for each in criteria if each
        ]
        judged = sum(_IN_WORDS in basis for basis in bases)
        if not judged:
            return []
        model = self.tau2.module("config").DEFAULT_LLM_NL_ASSERTIONS
        note = (
            f"{judged} of {len(self._found)} tasks of {self.domain} are also judged in "
            f"words: tau2-bench asks its own judge, {model}, with your OPENAI_API_KEY."
        )
        return [note]


def _spec(tool: Any) -> ToolSpec:
    schema: dict[str, Any] = json.loads(json.dumps(tool.openai_schema))
    return spec_of_openai(schema)
