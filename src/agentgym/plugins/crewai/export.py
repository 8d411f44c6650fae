"""Export a trained agent to CrewAI, as an Agent, a Task or a Crew."""

from collections.abc import Callable, Sequence
from typing import Any

from crewai import Agent, Crew, Task

from agentgym.core.agent import Trained
from agentgym.integrations.agent_import import make
from agentgym.integrations.export import agent_and_tools
from agentgym.plugins.crewai.copies import with_model
from agentgym.plugins.crewai.crews import default_agent
from agentgym.plugins.crewai.quiet import silence
from agentgym.plugins.crewai.tools import BoundTool


def export(
    trained: Trained,
    load_model: Callable[[], Any],
    *,
    tools: Sequence[Any] | None = None,
    agent: Any = None,
) -> Agent | Task | Crew:
    """Return a trained agent as a CrewAI object.

    ``load_model`` returns its LLM. The other arguments and the errors are those of
    ``TrainedAgent.to_crewai``.
    """
    found, origin, offered = agent_and_tools(
        trained, "to_crewai", BoundTool.of, agent=agent, tools=tools
    )
    model = load_model()
    runs: Agent | Task | Crew
    if found is None:
        spec = trained.spec
        runs = default_agent(model, offered, spec.system_prompt, spec.max_turns)
        runs.respect_context_window = True  # otherwise CrewAI would exit the process
    else:
        runs = with_model(make(found, origin, llm=model, tools=offered), model)
    silence()
    return runs
