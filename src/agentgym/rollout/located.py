"""Settings that other processes understand, from whatever folder they run in."""

from agentgym.core.config import TrainingConfig
from agentgym.integrations.live import reference_of, resolve_framework
from agentgym.models.reference import located_model
from agentgym.models.template import template_text
from agentgym.scenarios.packs import is_tasks_file
from agentgym.scenarios.registry import absolute_reference
from agentgym.scenarios.tool_tasks.scenario import with_own_tools


def located(config: TrainingConfig) -> TrainingConfig:
    """Return settings that mean the same from any folder, the agent's framework too.

    A tasks file without tools is about the agent's own.

    Raises:
        ScenarioError: A pack in ./scenarios has the name of a built-in scenario.
        UnsupportedError: The agent is of no framework.
        UsageError: The chat template cannot be read.
    """
    scenario, framework = config.scenario, config.framework
    if config.agent is not None and framework != "native":
        agent = reference_of(config.agent)
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
