"""Teams of every framework: who called, what each was offered, and who is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.core.ledger import ROLE_NOT_TRAINED
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UsageError
from agentgym.evaluate.metrics import role_metrics
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.registry import get_scenario
from agentgym.train import loop, warm_start
from agentgym.train.result import TrainingResult
from tests.integrations.calculator import TURNS, offered, said
from tests.integrations.test_calls import SCENARIO
from tests.rollout.sessions import session
from tests.scripted_engine import ScriptedEngine

Respond = Callable[[ChatRequest], Reply]
ADD = ("add", {"a": 1, "b": 2})


class Team(NamedTuple):
    """A factory of a framework, what the model says, and what must come of it."""

    framework: str
    factory: str
    respond: Respond
    steps: list[tuple[str, ...]]  # speakers, and what became of their calls

    @property
    def agent(self) -> str:
        place = "integrations" if self.framework == "langchain" else "plugins"
        return f"tests.{place}.{self.framework}.teams:{self.factory}"


def adds(request: ChatRequest) -> Reply:
    return Reply("DONE") if said(request) else Reply(calls=[ADD])


def in_turns(request: ChatRequest) -> Reply:
    """Plan where there are no tools, else add once and be done."""
    if not offered(request):
        return Reply("Please add them.")
    is_done = request.messages[-1]["role"] == "tool"
    return Reply("DONE") if is_done else Reply(calls=[ADD])


def handing_over(name: str, *arguments: dict[str, Any]) -> Respond:
    """Return who first calls a tool of the other role, then hands over."""

    def respond(request: ChatRequest) -> Reply:
        if "add" in offered(request):
            is_done = request.messages[-1]["role"] == "tool"
            return Reply("DONE") if is_done else Reply(calls=[ADD])
        calls = [ADD, *((name, each) for each in arguments)]
        place = said(request)
        return Reply(calls=[calls[place]]) if place < len(calls) else Reply("DONE")

    return respond


def mistakes_of(role: str, name: str) -> list[tuple[str, ...]]:
    return [
        (role,),
        ("add", "unknown_tool"),
        (role,),
        (name, "invalid_arguments"),
        (role,),
        (name, "ok"),
    ]


ROUND_ROBIN = Team(
    "autogen",
    "make_pair",
    in_turns,
    [("planner",), ("worker",), ("add", "ok"), ("worker",)],
)
SWARM = Team(
    "autogen",
    "make_swarm",
    handing_over("transfer_to_worker", {}),
    [
        ("desk",),
        ("add", "unknown_tool"),
        ("desk",),
        ("transfer_to_worker", "ok"),
        ("worker",),
        ("add", "ok"),
        ("worker",),
    ],
)
CREW = Team(
    "crewai",
    "make_delegating",
    handing_over(
        "delegate_work_to_coworker",
        {"task": "Add 1 and 2.", "context": "None."},
        {"task": "Add 1 and 2.", "context": "None.", "coworker": "Clerk"},
    ),
    [
        *mistakes_of("Lead", "delegate_work_to_coworker"),
        ("Clerk",),
        ("add", "ok"),
        ("Clerk",),
        ("Lead",),
    ],
)
SUPERVISOR = Team(
    "langchain",
    "make_supervisor",
    handing_over("ask_worker", {"work": "Add."}, {"job": "Add 1 and 2."}),
    [
        *mistakes_of("supervisor", "ask_worker"),
        ("worker",),
        ("add", "ok"),
        ("worker",),
        ("supervisor",),
    ],
)
GRAPH = Team(
    "langchain",
    "make_graph",
    in_turns,
    [("planner",), ("worker",), ("add", "ok"), ("worker",), ("critic",)],
)
ALONE = Team(
    "langchain", "make_chat", in_turns, [("agent",), ("add", "ok"), ("agent",)]
)
TEAMS = [ROUND_ROBIN, SWARM, CREW, SUPERVISOR, GRAPH]


def name_of(team: Team) -> str:
    return f"{team.framework}-{team.factory}"


def rollout(folder: Path, team: Team, respond: Respond | None = None) -> Trajectory:
    [task] = get_scenario(SCENARIO).tasks(Split.TRAIN, 0, 1)
    wanted = [RolloutRequest("r1", task, train=True, group="g", step=1)]
    policy = ScriptedPolicy(respond or team.respond)
    given = {"scenario": SCENARIO, "framework": team.framework, "max_attempts": 1}
    with session(folder, policy, **given, agent=team.agent) as opened:
        [trajectory] = opened.run(wanted, lambda _: None)
    return trajectory


def told(step: ModelCall | ToolCall) -> tuple[str, ...]:
    if isinstance(step, ModelCall):
        return (step.agent,)
    return (step.name, step.outcome.value)


@pytest.mark.parametrize("team", [*TEAMS, ALONE], ids=name_of)
def test_calls_are_judged_by_what_their_role_was_offered(
    tmp_path: Path, team: Team
) -> None:
    found = rollout(tmp_path, team)
    assert found.success, found.reason
    assert [told(step) for step in found.steps] == team.steps


@pytest.mark.slow
def test_each_role_has_its_own_turns(tmp_path: Path) -> None:
    """Many calls of one role leave the other its own."""

    def respond(request: ChatRequest) -> Reply:
        if "add" in offered(request):
            return Reply(calls=[("add", {"a": said(request), "b": 0})])
        calls = [("ask_worker", {"job": "Add."})] * (not said(request))
        return Reply("DONE", calls)

    found = rollout(tmp_path, SUPERVISOR, respond)
    speakers = [call.agent for call in found.model_calls]
    assert str(found.reason) == f"max_turns: no answer within {TURNS} calls of worker"
    assert speakers == ["supervisor", *["worker"] * TURNS]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ScriptedEngine]:
    """Return the engines that trainings make, which learn nothing."""
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    made: list[ScriptedEngine] = []

    def create(config: TrainingConfig) -> ScriptedEngine:
        [team] = [team for team in TEAMS if team.agent == config.agent.reference]
        made.append(ScriptedEngine(team.respond))
        return made[-1]

    monkeypatch.setattr(loop, "create_engine", create)
    return made


def train(folder: Path, team: Team, **settings: Any) -> TrainingResult:
    small = {"episodes": 4, "group_size": 2, "tasks_per_step": 2, "eval_samples": 1}
    few = {"eval_tasks": 1, "test_tasks": 1, "tracker": "none", "yes": True}
    config = TrainingConfig.create(
        scenario=SCENARIO,
        framework=team.framework,
        agent=team.agent,
        workers=1,
        output=folder,
        name="run",
        **small,
        **few,
        **settings,
    )
    return Trainer(config).train()


def calls_of(team: Team, rollouts: int) -> dict[str, int]:
    """Return how often each role calls the model in so many rollouts."""
    roles = [step[0] for step in team.steps if len(step) == 1]
    return {role: rollouts * roles.count(role) for role in roles}


SLOW = [pytest.param(team, marks=pytest.mark.slow) for team in (SWARM, CREW, GRAPH)]


@pytest.mark.slow
@pytest.mark.parametrize("team", [ROUND_ROBIN, SUPERVISOR, *SLOW], ids=name_of)
def test_a_team_is_trained_role_by_role(
    tmp_path: Path, engines: list[ScriptedEngine], team: Team
) -> None:
    *frozen, role = calls_of(team, 1)
    result = train(tmp_path, team, train_roles=role)
    ledger = result.ledger
    assert ledger.adds_up
    assert {name: part.calls for name, part in ledger.roles.items()} == calls_of(
        team, 4
    )
    assert ledger.roles[role].trained == ledger.trained == ledger.roles[role].calls
    assert frozen
    for other in frozen:
        part = ledger.roles[other]
        assert part.masked == {ROLE_NOT_TRAINED: part.calls}
    [batch] = engines[0].batches
    assert {sequence.agent for sequence in batch.sequences} == {role}

    measured = role_metrics(result.metrics)
    assert {name: m.model_calls.value for name, m in measured.items()} == calls_of(
        team, 1
    )
    whole = result.metrics
    assert sum(m.tokens.value for m in measured.values()) == whole.tokens.value
    asked = [m for m in measured.values() if m.right_tool.n]
    assert [m.right_tool.value for m in asked] == [1.0]


@pytest.mark.slow
def test_a_warm_start_imitates_only_the_roles_that_are_trained(
    tmp_path: Path, engines: list[ScriptedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_start, "TASKS", 2)
    monkeypatch.setattr(warm_start, "LEAST_UPDATES", 1)
    train(tmp_path, GRAPH, train_roles="worker", warm_start=True)
    imitated = [s for batch in engines[0].imitated for s in batch.sequences]
    assert {sequence.agent for sequence in imitated} == {"worker"}


@pytest.mark.slow
def test_a_role_that_nobody_has_is_refused_with_those_there_are(
    tmp_path: Path, engines: list[ScriptedEngine]
) -> None:
    with pytest.raises(UsageError) as refused:
        train(tmp_path, ROUND_ROBIN, train_roles="planer, worker")
    assert "train_roles names 'planer'" in str(refused.value)
    assert "Did you mean 'planner'? Those that have: planner, worker." in str(
        refused.value
    )
    assert not (tmp_path / "run").exists()
