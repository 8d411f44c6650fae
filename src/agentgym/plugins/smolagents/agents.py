"""Read agents of smolagents, and redirect their models and tools in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. Some of the patched parts are not public: a test fails when a
new version of smolagents changes them.
"""

import asyncio
import copy
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from smolagents import CodeAgent, LogLevel, MultiStepAgent, Tool, ToolCallingAgent
from smolagents.agents import EMPTY_PROMPT_TEMPLATES
from smolagents.memory import AgentMemory
from smolagents.models import Model, OpenAIModel, get_tool_json_schema
from smolagents.monitoring import AgentLogger, Monitor

from agentgym.core.background import call_in_thread
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import ToolSpec
from agentgym.integrations.client_adapter import (
    ClientConversation,
    ClientFramework,
    Run,
    Settings,
    asking,
    patch_model_of,
    run_sync,
    spec_of,
    text_of,
)
from agentgym.integrations.episode import current_episode
from agentgym.integrations.in_place import called_sync
from agentgym.integrations.plain_openai import sync_client
from agentgym.integrations.redirect import patch_methods, replace_calls
from agentgym.integrations.transport import speaking_as

_NAME = "smolagents"
_ANSWER = "final_answer"
_MOST = 10_000
"""Limit of an agent's steps. It exceeds an episode's limits, which end the run."""


class SmolagentsModel(OpenAIModel):
    """OpenAI's model of smolagents, which asks as an agent of a name."""

    role = DEFAULT_AGENT

    def __init__(self, client: Any, name: str) -> None:
        sync = sync_client(client)
        super().__init__(name, client=sync, flatten_messages_as_text=True)

    def as_role(self, name: str | None) -> "SmolagentsModel":
        """Return a copy that sends an agent's name with each request."""
        made = copy.copy(self)
        made.role = name or DEFAULT_AGENT
        return made

    def generate(self, *args: Any, **named: Any) -> Any:
        """Send a request with the agent's name, and return the answer."""
        with speaking_as(self.role):
            return super().generate(*args, **named)

    def generate_stream(self, *args: Any, **named: Any) -> Any:
        """Send a request with the agent's name, and yield the answer."""
        with speaking_as(self.role):
            yield from super().generate_stream(*args, **named)

    def _prepare_completion_kwargs(self, *args: Any, **named: Any) -> dict[str, Any]:
        tools = [_described(tool) for tool in named.pop("tools_to_call_from", ()) or ()]
        made = super()._prepare_completion_kwargs(*args, **named)
        return {**made, "tools": tools, "tool_choice": "required"} if tools else made


class SmolagentsTool(Tool):
    """A tool that is known by its schema, whose arguments AgentGym checks."""

    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, spec: ToolSpec, run: Any) -> None:
        self.spec, self._call, self.is_initialized = spec, run, True
        self.name, self.description = spec.name, spec.description
        self.inputs: dict[str, Any] = {}

    def validate_arguments(self) -> None:
        """Check nothing: the schema may be any JSON schema."""

    def forward(self, **arguments: Any) -> str:
        """Run the tool."""
        return run_sync(self._call(arguments, None))


def _described(tool: Any) -> dict[str, Any]:
    is_ours = isinstance(tool, SmolagentsTool)
    return tool.spec.to_openai() if is_ours else get_tool_json_schema(tool)


def _copied(agent: Any, model: Any = None) -> Any:
    """Return a copy of an agent and of its managed agents, perhaps on another model.

    One for training, without a model, prints nothing.
    """
    made = copy.copy(agent)
    made.memory, made.state = AgentMemory(agent.system_prompt), dict(agent.state)
    if model is None:
        made.logger = AgentLogger(level=LogLevel.OFF)
    else:
        made.model = model
    made.monitor = Monitor(vars(made)["model"], made.logger)
    made.step_callbacks = copy.copy(agent.step_callbacks)
    made.step_callbacks._callbacks = {
        step: [_of_monitor(call, agent, made) for call in calls]
        for step, calls in agent.step_callbacks._callbacks.items()
    }
    inner = agent.managed_agents.items()
    made.managed_agents = {name: _copied(each, model) for name, each in inner}
    return made


def _of_monitor(call: Any, agent: Any, made: Any) -> Any:
    is_its = getattr(call, "__self__", None) is agent.monitor
    return made.monitor.update_metrics if is_its else call


def _calling(execute: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(execute)
    def routed(self: Any, tool_name: str, arguments: Any) -> Any:
        tool = self.tools.get(tool_name)

        def run(_: Any) -> Any:
            with asking(_NAME, self.model, SmolagentsModel):
                if isinstance(tool, SmolagentsTool):  # it checks its arguments itself
                    return tool.forward(**arguments)
                return execute(self, tool_name, arguments)

        def passes_control() -> Any:
            others = tool_name in (_ANSWER, *self.managed_agents)
            return others or (tool is not None and FRAMEWORK.passes_control(tool))

        return called_sync(tool_name, arguments, run, passes_control, read=str)

    return routed


class _Conversation(ClientConversation):
    async def answer(self, asked: Any) -> str:
        """Run the agent in a thread, as its ``run`` is sync."""
        agent = self._state
        goes_on = bool(agent.memory.steps)
        try:
            named = {"reset": not goes_on, "max_steps": _MOST}
            return text_of(await call_in_thread(agent.run, asked, **named))
        except asyncio.CancelledError:
            current_episode().cut_short("cancelled")  # so the thread's next call fails
            raise


class _SmolagentsFramework(ClientFramework):
    """Agents, tools and models of smolagents."""

    AGENTS, TOOLS, MODEL = MultiStepAgent, Tool, Model
    BY_TEXT, INSTEAD = CodeAgent, "ToolCallingAgent"
    conversation = _Conversation

    def patch(self) -> None:
        names = ("generate", "generate_stream", "__call__", "parse_tool_calls")
        replace_calls(Model, names, _NAME)
        patch_methods(ToolCallingAgent, ("execute_tool_call",), _calling)
        patch_model_of(MultiStepAgent, _NAME, self)

    def model(self, client: Any, name: str) -> Any:
        return SmolagentsModel(client, name)

    def tool(self, spec: ToolSpec, run: Run) -> Any:
        return SmolagentsTool(spec, run)

    def default_agent(
        self, name: str, model: Any, tools: list[Any], settings: Settings
    ) -> Any:
        prompt = "{% raw %}" + settings.system_prompt + "{% endraw %}"
        templates: Any = {**EMPTY_PROMPT_TEMPLATES, "system_prompt": prompt}
        return ToolCallingAgent(tools, model, templates, verbosity_level=-1)

    def on_model(self, agent: Any, model: Any) -> Any:
        return _copied(agent, model)

    def begin(self, agent: Any) -> Any:
        """Return a copy of an agent, which prints nothing."""
        return _copied(agent)

    def refuse_by_text(self, agent: Any) -> None:
        super().refuse_by_text(agent)
        for each in agent.managed_agents.values():
            self.refuse_by_text(each)

    def function(self, tool: Any) -> Any:
        return tool.forward

    def spec(self, tool: Any) -> ToolSpec:
        known = _described(tool)["function"]
        return spec_of(known["name"], known["description"], known["parameters"])

    async def run(self, tool: Any, arguments: dict[str, Any]) -> Any:
        return str(await call_in_thread(partial(tool, **arguments)))


FRAMEWORK = _SmolagentsFramework()
