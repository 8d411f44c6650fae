"""Settings that other processes understand, from whatever folder they run in."""

from agentgym.core.config import TrainingConfig
from agentgym.core.machines import is_elsewhere
from agentgym.errors import UsageError
from agentgym.integrations.agent_import import reference_of, resolve_framework
from agentgym.models.reference import located_model
from agentgym.models.template import template_text
from agentgym.scenarios.packs import is_tasks_file
from agentgym.scenarios.registry import BUILT_IN, absolute_reference, get_scenario
from agentgym.scenarios.tool_tasks.scenario import with_own_tools


def located(config: TrainingConfig) -> TrainingConfig:
    """Return settings that mean the same from any folder, the agent's framework too.

    A scenario's own agent is taken where the user names none. A tasks file without
    tools is about the agent's own. A pack that trains on another machine is imported
    on that machine alone, which takes its agent there.

    Raises:
        ScenarioError: A pack in ./scenarios has the name of a built-in scenario.
        UnsupportedError: The agent is of no framework.
        UsageError: The chat template cannot be read, or the scenario's own agent is of
            another framework.
    """
    scenario, framework = config.scenario, config.framework
    runs_pack_elsewhere = is_elsewhere(config.gpu) and scenario not in BUILT_IN
    if config.agent.reference is None and not runs_pack_elsewhere:
        config = config.replaced(agent=_own_agent(scenario, framework))
    if config.agent.reference is not None and framework != "native":
        agent = reference_of(config.agent.reference)
        config = config.replaced(agent=agent)
        framework = resolve_framework(agent, framework)
        if is_tasks_file(scenario):
            scenario = with_own_tools(scenario, agent)
    return config.replaced(
        scenario=absolute_reference(scenario),
        model=located_model(config.model),
        chat_template=template_text(config.chat_template),
        framework=framework,
    )


def _own_agent(reference: str, framework: str) -> str | None:
    """Return the scenario's own agent for a framework; None if it has none at all."""
    if is_tasks_file(reference):
        return None
    scenario = get_scenario(reference)
    scenario.close()
    agents = scenario.agents
    if agents and framework not in agents:
        raise UsageError(
            f"The agent of {scenario.name} is written for {', '.join(agents)}: use "
            f"--framework {next(iter(agents))}, or name your own with --agent."
        )
    return agents.get(framework)
