"""Where each task has tools of its own, every framework's agent is offered these."""

import json
import re
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.engines.lengths import longest_episode
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UsageError
from agentgym.evaluate.call_classes import CallClass
from agentgym.evaluate.check import check_scenario
from agentgym.evaluate.evaluation import judge
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import probed
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.registry import get_scenario
from agentgym.train import warm_start
from agentgym.train.export import Identity
from agentgym.train.result import use_of
from agentgym.train.trained_agent import TrainedAgent
from agentgym.train.warm_start import FineTuning
from agentgym.ui.cards import agent_view
from tests.integrations.calculator import said
from tests.rollout.sessions import session
from tests.scripted_engine import ScriptedEngine, made_run
from tests.train.agents import make_agent
from tests.ui import made_up
from tests.ui.test_tables import shown

SCENARIO = str(Path(__file__).parent / "own_tools_each.py")
AGENT = "tests.integrations.own_tools_each:make_agent"


def heat(request: ChatRequest) -> Reply:
    """Call the first tool that is offered, with the number that the user says."""
    if said(request):
        return Reply("Done.")
    function = request.tools[0]["function"]
    [argument] = function["parameters"]["properties"]
    [degrees] = re.findall(r"\d+", str(request.messages[-1]["content"]))
    return Reply(calls=[(function["name"], json.dumps({argument: int(degrees)}))])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "agent"),
    [
        ("native", None),
        ("langchain", None),
        ("langchain", AGENT),
        ("autogen", None),
        ("crewai", None),
        # Each starts workers that import a framework more.
        pytest.param("agent_framework", None, marks=pytest.mark.slow),
        pytest.param("openai_agents", None, marks=pytest.mark.slow),
        pytest.param("pydantic_ai", None, marks=pytest.mark.slow),
    ],
)
def test_each_task_is_offered_its_own_tools(
    tmp_path: Path, framework: str, agent: str | None
) -> None:
    scenario = get_scenario(SCENARIO)
    tasks = scenario.tasks(Split.TEST, 0, 6)  # two of each room
    wanted = [
        RolloutRequest(f"r{n}", task, train=False, group="g", step=0)
        for n, task in enumerate(tasks)
    ]
    given = {"scenario": SCENARIO, "framework": framework, "agent": agent}
    with session(tmp_path, ScriptedPolicy(heat), max_attempts=1, **given) as opened:
        made: list[Trajectory] = opened.run(wanted, lambda _: None)
    for task, found in zip(tasks, made, strict=True):
        assert found.success, found.reason
        names = [tool["function"]["name"] for tool in found.model_calls[0].tools]
        assert names == [f"heat_{task.goal['room']}", "wait"]
        told = found.model_calls[0].tools[1]["function"]["description"]
        assert told == f"Wait in the {task.goal['room']}."
    attempts, confusion = judge(scenario, tasks, made)
    assert [attempt.calls for attempt in attempts] == [{CallClass.RIGHT: 1}] * 6
    assert confusion is not None
    assert set(confusion.tools) == {"heat_kitchen", "heat_cellar", "heat_Attic", "wait"}


@pytest.mark.parametrize(
    "framework",
    [
        "native",
        pytest.param("langchain", marks=pytest.mark.slow),
        pytest.param("autogen", marks=pytest.mark.slow),
        pytest.param("crewai", marks=pytest.mark.slow),
    ],
)
def test_one_answer_ends_a_task_that_says_so(tmp_path: Path, framework: str) -> None:
    pack = tmp_path / "own_tools_each.py"
    text = Path(SCENARIO).read_text()
    pack.write_text(text.replace("seed=seed,", "seed=seed,\n        one_answer=True,"))
    tasks = get_scenario(str(pack)).tasks(Split.TEST, 0, 3)
    wanted = [
        RolloutRequest(f"r{n}", task, train=False, group="g", step=0)
        for n, task in enumerate(tasks)
    ]
    given = {"scenario": str(pack), "framework": framework, "max_attempts": 1}
    with session(tmp_path, ScriptedPolicy(heat), **given) as opened:
        made: list[Trajectory] = opened.run(wanted, lambda _: None)
    assert [(len(t.model_calls), t.success, t.reason) for t in made] == [
        (1, True, None)
    ] * 3


@pytest.mark.slow
def test_an_environment_with_tools_that_the_scenario_does_not_name_fails_the_check(
    tmp_path: Path,
) -> None:
    text = Path(SCENARIO).read_text()
    asked = "return _task_tools(0)"
    text = text.replace("        return []\n", f"        {asked}\n", 1)
    text += "\n\ndef _task_tools(n: int) -> list[ToolSpec]:\n"
    text += "    return [tool.spec for tool in Room(ROOMS[n]).tools()]\n"
    pack = tmp_path / "own_tools_each.py"
    pack.write_text(text)
    found = {finding.name: finding for finding in check_scenario(str(pack), tasks=6)}
    assert found["tools"].status == "fail"
    assert "heat_cellar" in found["tools"].why
    assert "return [] there" in found["tools"].why


def test_the_trained_agent_has_no_tools_of_its_own_and_says_so(tmp_path: Path) -> None:
    made = make_agent(tmp_path / "agent", 0.2, 0.8, scenario=SCENARIO, tools=[])
    trained = TrainedAgent.load(made.path)
    for export in ("to_langchain", "to_autogen", "to_crewai"):
        with pytest.raises(UsageError, match=rf"give yours with {export}\(tools="):
            getattr(trained, export)()
    assert "each task brought some" in shown(agent_view(trained), 100)
    result = made_up.result()
    places = result.artifacts.model_copy(update={"agent": made.path})
    result = result.model_copy(update={"artifacts": places})
    language, code = use_of(result)
    assert language == "python"
    assert code.endswith(".to_langchain(tools=[...])\n")
    here = Identity.of_saved(trained)
    assert not here.is_of(here._replace(source="elsewhere"))


def test_the_longest_prompt_has_the_most_tools() -> None:
    short, long = (
        longest_episode(TrainingConfig.create(scenario=SCENARIO, max_tokens=tokens))
        for tokens in (1, 11)
    )
    scenario = get_scenario(SCENARIO)
    assert long == short + 10 * scenario.max_turns
    fixed = scenario.max_turns * 257
    cellar = scenario.tasks(Split.TRAIN, 0, 2)[1]
    written = len(cellar.instruction) + len(scenario.system_prompt())
    assert short > fixed + written / 3 + 100  # its tools, about 400 characters


@pytest.mark.slow
@pytest.mark.parametrize("agent", [None, AGENT])
def test_a_warm_start_plays_each_plan_with_its_own_tools(
    monkeypatch: pytest.MonkeyPatch, agent: str | None
) -> None:
    monkeypatch.setattr(warm_start, "TASKS", 6)
    monkeypatch.setattr(warm_start, "LEAST_UPDATES", 1)
    config = located(TrainingConfig.create(scenario=SCENARIO, agent=agent))
    engine = ScriptedEngine(lambda request: Reply("Done."))
    scenario = get_scenario(config.scenario)
    report = probed(config) if agent else None
    made = FineTuning(made_run(config, scenario, engine, agent=report)).run()
    assert (made.imitated, made.failed) == (6, {})
