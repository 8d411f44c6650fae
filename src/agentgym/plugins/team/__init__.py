"""The coding team, as a scenario and at work; its row in the list of scenarios."""

from agentgym.scenarios.packs import ScenarioCard

CARDS = [
    ScenarioCard(
        "coding_team",
        "Lead a coding team: route, review and test the code of a generator.",
        "intermediate",
        "about 20 minutes on 2 cores",
        "agentgym.plugins.team.coding_team.scenario:CodingTeamScenario",
    ),
]
