"""The trained team comes back as the same graph."""

from pathlib import Path
from typing import Any

import pytest

from agentgym.core.task import Split
from agentgym.plugins.team.coding_team.scenario import CodingTeamScenario
from agentgym.train.trained_agent import TrainedAgent
from tests.plugins.team.coding_team import cast
from tests.plugins.team.coding_team.test_graph import good
from tests.train.agents import make_agent


def trained(folder: Path) -> TrainedAgent:
    made = make_agent(folder / "agent", 0.1, 0.5, scenario="coding_team")
    reference = CodingTeamScenario.agents["langchain"]
    changed = {"agent": reference, "framework": "langchain", "max_turns": 3}
    return made.model_copy(update={"spec": made.spec.model_copy(update=changed)})


async def test_the_graph_comes_back_with_the_trained_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: CodingTeamScenario
) -> None:
    """Each role has the turns of training, so that the whole team has more."""
    from agentgym.integrations.langchain import LangChainAdapter

    roles = good()

    def play(messages: Any) -> Any:
        prompts = {"lead": "supervisor", "review": "reviewer", "test": "executor"}
        role = prompts[messages[0].text.split()[1]]
        return roles[role].play(messages)

    model = cast.actor(play)
    monkeypatch.setattr(LangChainAdapter, "trained_model", lambda *_: model)
    [task] = [t for t in scenario.tasks(Split.TEST, 0, 5) if t.family == "direct"]
    tools = [
        LangChainAdapter().framework.bound(tool)
        for tool in scenario.create_environment(task).tools()
    ]
    graph = trained(tmp_path).to_langchain(tools=tools)
    assert {"supervisor", "generator", "reviewer", "executor"} <= graph.nodes.keys()
    state = await graph.ainvoke({"messages": [("user", task.instruction)]})
    assert state["outcome"] == "passed"
    assert len(model.heard) == 5  # more than the three of one role
