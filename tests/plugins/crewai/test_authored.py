"""Episodes of agents and crews as their authors wrote them."""

from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import AgentGymError, RolloutError
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.crewai import CrewAIAdapter
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import probed
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.registry import get_scenario
from tests.plugins.crewai.test_episodes import note_once, notes_of
from tests.rollout.sessions import session

ADAPTER = CrewAIAdapter()
AUTHORED = "tests.plugins.crewai.authored"
FLOWS = "tests.plugins.crewai.flows"

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("installed")]


def run_all(
    folder: Path, agent: str, respond: Any, count: int = 1, **settings: Any
) -> list[Trajectory]:
    folder.mkdir(exist_ok=True)
    tasks = get_scenario("desk").tasks(Split.TRAIN, 0, count)
    wanted = [
        RolloutRequest(f"r{n:02d}", task, train=True, group="g", step=1)
        for n, task in enumerate(tasks)
    ]
    agent = agent if ":" in agent else f"{AUTHORED}:{agent}"
    told = {"scenario": "desk", "framework": "crewai", "agent": agent}
    options = {"max_attempts": 1, **settings}
    with session(folder, ScriptedPolicy(respond), **told, **options) as opened:
        return opened.run(wanted, lambda _: None)


def run(folder: Path, agent: str, respond: Any, **settings: Any) -> Trajectory:
    [trajectory] = run_all(folder, agent, respond, **settings)
    return trajectory


def offered(request: ChatRequest) -> set[str]:
    return {tool["function"]["name"] for tool in request.tools}


def delegate_or_note(request: ChatRequest) -> Reply:
    if request.messages[-1]["role"] == "tool":
        return Reply("Done.")
    if "note" in offered(request):
        return Reply(calls=[("note", {"text": "this"})])
    work = {"task": "Note this.", "context": "None.", "coworker": "Scribe"}
    return Reply(calls=[("delegate_work_to_coworker", work)])


def plan_and_note(request: ChatRequest) -> Reply:
    if offered(request) == {"create_reasoning_plan"}:
        plan = {"plan": "Note it.", "steps": [], "ready": True}
        return Reply(calls=[("create_reasoning_plan", plan)])
    return note_once(request)


def note_and_answer(request: ChatRequest) -> Reply:
    if request.form:
        assert request.form == "Answer"
        return Reply(calls=[("Answer", {"text": "Noted."})])
    return note_once(request)


@pytest.mark.parametrize(
    ("agent", "respond", "who"),
    [
        ("scribe", note_once, ["Scribe"] * 2),
        pytest.param("make_own", note_once, ["Scribe"] * 2, marks=pytest.mark.slow),
        pytest.param("make_on", note_once, ["Scribe"] * 2, marks=pytest.mark.slow),
        pytest.param("make_later", note_once, ["Scribe"] * 2, marks=pytest.mark.slow),
        pytest.param("work", note_once, ["Scribe"] * 2, marks=pytest.mark.slow),
        ("pair", note_once, ["Scribe", "Scribe", "Critic"]),
        pytest.param("Office", note_once, ["Scribe"] * 2, marks=pytest.mark.slow),
        pytest.param("asking", note_once, ["Scribe"] * 2, marks=pytest.mark.slow),
        pytest.param("twins", note_once, ["Twin"] * 2, marks=pytest.mark.slow),
        ("led", delegate_or_note, ["Crew Manager", "Scribe", "Scribe", "Crew Manager"]),
        pytest.param(
            "headed",
            delegate_or_note,
            ["Head", "Scribe", "Scribe", "Head"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "planning", plan_and_note, ["Planner"] * 3, marks=pytest.mark.slow
        ),
        pytest.param(
            "structured",
            note_and_answer,
            ["Scribe", "Scribe", "agent"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "in_json",
            note_and_answer,
            ["Scribe", "Scribe", "agent"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_its_models_and_tools_are_led_to_training(
    tmp_path: Path, agent: str, respond: Any, who: list[str]
) -> None:
    found = run(tmp_path, agent, respond)
    assert notes_of(found) == ["0 this"], found.reason
    assert [call.agent for call in found.model_calls] == who
    [call] = [c for c in found.get_tool_calls() if c.name == "note"]
    assert call.result == "1 notes"


@pytest.mark.parametrize("count", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_episodes_at_once_share_nothing(tmp_path: Path, count: int) -> None:
    def respond(request: ChatRequest) -> Reply:
        return note_once(request) if request.tools else Reply("Fine.")

    done = run_all(tmp_path, "pair", respond, count, workers=1)
    for found in done:
        assert notes_of(found) == ["0 this"], found.reason
        assert [call.agent for call in found.model_calls] == [
            "Scribe",
            "Scribe",
            "Critic",
        ]
        assert [len(call.messages) for call in found.model_calls] == [2, 4, 2]


def test_tools_that_the_episode_does_not_have_run_as_they_are(tmp_path: Path) -> None:
    calls = [("shout_out", {"word": "hey"}), ("later", {"word": "a"}), ("once", {})]

    def respond(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("Done.")
        return Reply(calls=[*calls, ("once", {})])

    for found in run_all(tmp_path, "scribe", respond, 4):
        told = [
            message["content"]
            for message in found.model_calls[-1].messages
            if message["role"] == "tool"
        ]
        assert told[:3] == ["HEY", "a later", "once and no more"]
        assert "usage limit of 1" in told[3]


def test_a_crew_whose_tasks_take_inputs_is_given_them(tmp_path: Path) -> None:
    found = run(tmp_path, "topical", note_once, **{"agent.inputs": f"{AUTHORED}:topic"})
    assert notes_of(found) == ["0 this"], found.reason
    asked = found.model_calls[0].messages[-1]["content"]
    assert f"Write of {found.task_id} for all." in asked
    alone = run(
        tmp_path / "a", "scribe", note_once, **{"agent.inputs": f"{AUTHORED}:told"}
    )
    assert f"Please: {alone.task_id}" in alone.model_calls[0].messages[-1]["content"]


@pytest.mark.parametrize("name", ["flow", "Stream"])
def test_every_rollout_has_a_flow_of_its_own(tmp_path: Path, name: str) -> None:
    made = run_all(tmp_path, f"{FLOWS}:{name}", note_once, count=2)
    for found in made:
        assert found.reason is None, found.reason
        assert notes_of(found) == ["0 this"]
        assert [call.agent for call in found.model_calls] == ["Scribe"] * 2 + ["Closer"]


def test_no_provider_is_asked_for_the_length_of_a_flows_prompts() -> None:
    config = TrainingConfig.create(scenario="desk", agent=f"{FLOWS}:flow")
    report = probed(located(config.replaced(framework="crewai")))
    assert report.problems == []
    assert report.bound == ["note"]
    assert not [each for each in report.concerns if "tried to reach" in each]


def test_a_flow_with_a_state_gets_inputs(tmp_path: Path) -> None:
    given = f"{FLOWS}:topic"
    found = run(tmp_path / "a", f"{FLOWS}:Loop", note_once, **{"agent.inputs": given})
    assert notes_of(found) == ["0 this", "1 this"], found.reason
    asked = found.model_calls[0].messages[-1]["content"]
    assert f"Do this: topic of {found.task_id}" in asked
    lost = run(tmp_path / "b", f"{FLOWS}:Loop", note_once)
    assert "It has topic, noted: give --inputs module:function" in str(lost.reason)
    flow, model = load_agent(f"{FLOWS}:flow"), CrewAIAdapter().stand_in()
    with pytest.raises(AgentGymError, match="agentgym serve"):
        CrewAIAdapter().with_model(flow, model)


def test_a_client_of_openais_own_is_led_too(tmp_path: Path) -> None:
    found = run(tmp_path, "asker", lambda _: Reply("Fine."))
    [call] = found.model_calls
    assert call.messages[-1]["content"] == "Note {this}."
    assert call.content == "Fine."


def test_steps_of_a_plan_are_not_observed() -> None:
    [note] = ADAPTER.framework.notes(load_agent(f"{AUTHORED}:planning"))
    assert "Steps of a plan are not observed" in note


def test_files_of_a_crew_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = load_agent(f"{AUTHORED}:writing")
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    found = run(tmp_path, "writing", note_once)
    assert notes_of(found) == ["0 this"], found.reason
    assert list(place.iterdir()) == []
    [note] = ADAPTER.framework.notes(written)
    assert note == ("Not written in training: report.md, crew_log.txt, checkpoints.")
    kept = CrewAIAdapter().with_model(written, CrewAIAdapter().stand_in())
    for crew in (written, kept):
        assert crew.tasks[0].output_file == "report.md"
        assert crew.output_log_file == "crew_log.txt"
        assert crew.checkpoint is not None


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ("breaking", "the agent is broken"),
        ("exiting", "SystemExit: 3"),
        ("deaf", "ended without calling the model"),
    ],
)
def test_what_goes_wrong_drops_the_episode_and_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], agent: str, reason: str
) -> None:
    found = run(tmp_path, agent, note_once)
    assert found.status is RolloutStatus.DROPPED
    assert reason in str(found.reason)
    assert capfd.readouterr().out == ""


def test_a_tool_that_ends_the_process_ends_the_episode(tmp_path: Path) -> None:
    found = run(tmp_path, "quitting", lambda _: Reply(calls=[("quit_all", {})]))
    assert found.status is RolloutStatus.DROPPED
    assert "quit_all called sys.exit(3)" in str(found.reason)
    assert len(found.model_calls) == 1


@pytest.mark.slow  # each starts a process that imports CrewAI
@pytest.mark.parametrize(
    ("agent", "settings", "told"),
    [
        ("silent", {}, r"no words. Write \{task\} in a description"),
        ("topical", {}, r"They say \{reader\}, \{topic\}: give --inputs module:"),
        ("scribe", {"agent.context": f"{AUTHORED}:topic"}, "no runtime context"),
        ("Burnt", {}, "Burnt failed to make the agent: ValidationError"),
        ("MODEL", {}, "gave a str, not an Agent, Task, Crew"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    tmp_path: Path, agent: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(RolloutError, match=told):
        run(tmp_path, agent, note_once, **settings)


@pytest.mark.slow  # it starts two processes that import CrewAI
def test_inputs_of_another_kind_are_refused(tmp_path: Path) -> None:
    for agent, inputs, wanted in (
        ("topical", "told", "dict"),
        ("scribe", "topic", "text"),
    ):
        found = run(
            tmp_path / agent,
            agent,
            note_once,
            **{"agent.inputs": f"{AUTHORED}:{inputs}"},
        )
        assert found.status is RolloutStatus.DROPPED
        assert f"--inputs {AUTHORED}:{inputs} gave a" in str(found.reason)
        assert wanted in str(found.reason)
