"""Trajectories and tasks in formats of other tools."""

from agentgym.scenarios.packs import ScenarioCard

CARDS = [
    ScenarioCard(
        "harbor",
        "Harbor's task folders that need no image: --data FOLDER.",
        "advanced",
        "for real models; minutes to hours, by the tasks",
        "agentgym.plugins.formats.harbor:HarborScenario",
    )
]
