"""Make a run's settings independent of the current folder and its files."""

from agentgym.core.config import TrainingConfig
from agentgym.core.machines import is_elsewhere
from agentgym.core.task import TaskSource
from agentgym.errors import UsageError
from agentgym.integrations.agent_import import (
    reference_of,
    require_own_tools,
    resolve_framework,
)
from agentgym.models.reference import located_model
from agentgym.models.template import template_text
from agentgym.plugins import registered
from agentgym.rollout.prompt_overrides import wording_text
from agentgym.scenarios.packs import is_tasks_file
from agentgym.scenarios.registry import BUILT_IN, absolute_reference, agents_of
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)


def located(config: TrainingConfig, *, own_agent: bool = True) -> TrainingConfig:
    """Return settings with absolute paths, and with the framework of the user's agent.

    The texts of files (chat template, rubric, prompts) replace the paths of the files.
    If the user names no agent, the agent of the scenario is used, except with
    ``own_agent=False``. If a tasks file needs tools but has none, it gets the tools of
    the agent. If the run trains on a remote machine, only that machine imports a
    scenario pack (a folder that defines a scenario) and looks for the pack's agent.
    """
    scenario, framework = config.scenario, config.framework
    is_imported_here = not is_elsewhere(config.gpu) or scenario in BUILT_IN
    takes_own = own_agent and config.agent.reference is None and is_imported_here
    if takes_own and (own := _own_agent(scenario, framework)):
        config = config.replaced(agent=own)
    if config.agent.reference is not None and framework != "native":
        agent = reference_of(config.agent.reference)
        config = config.replaced(agent=agent)
        chosen = framework if "framework" in config.model_fields_set else None
        framework = resolve_framework(agent, chosen)
        if chosen not in (None, framework):
            logger.warning(
                "--framework %s is not used: %s is an agent of %s.",
                *(chosen, config.agent.reference, framework),
            )
        if is_tasks_file(scenario):
            from agentgym.scenarios.tool_tasks.scenario import with_own_tools

            scenario = with_own_tools(scenario, agent)
            if f"@{agent}" in TaskSource.parse(scenario).tools:
                require_own_tools(agent)
    config = registered("agentgym.judge", "located")(config)
    return config.replaced(
        scenario=absolute_reference(scenario),
        model=located_model(config.model),
        chat_template=template_text(config.chat_template),
        prompts=wording_text(config.prompts),
        framework=framework,
    )


def _own_agent(reference: str, framework: str) -> str | None:
    """Return the agent that the scenario ``reference`` defines; None if it has none."""
    agents = agents_of(reference)
    if agents and framework not in agents:
        raise UsageError(
            f"The agent of {reference} is written for {', '.join(agents)}: use "
            f"--framework {next(iter(agents))}, or name your own with --agent."
        )
    return agents.get(framework)
