"""Rewards that a tool, a node of a graph or a check gives."""

from collections.abc import Callable
from pathlib import Path

import pytest

import agentgym
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.new_pack import write_pack
from agentgym.scenarios.registry import get_scenario
from tests.rollout.sessions import session

LOOK = 'return f"{self._known(room)}: {self.degrees[room]} degrees"'
SCORE = "assert isinstance(environment, House)\n"
GIVES = """import agentgym
        if room == "nan":
            agentgym.reward(float("nan"), name="looked")
        if room == "thread":
            import concurrent.futures
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                pool.submit(agentgym.reward, 0.25, name="looked").result()
        agentgym.reward(0.25, name="looked")
        return "21 degrees"
"""
CHECKS = f"""{SCORE}        import agentgym
        assert sum(c.rewards.get("looked", 0) for c in trajectory.model_calls) > 0
        agentgym.reward(0.5, name="checked")
"""
GRAPH = """
import agentgym
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph

@tool
def read_temperature(room: str) -> str:
    "Read the temperature of a room."
    return "21 degrees"

def praise(state):
    agentgym.reward(0.125, name="praised")
    return {}

def build(model):
    graph = StateGraph(MessagesState)
    graph.add_node("desk", create_agent(model, tools=[read_temperature]))
    graph.add_node("praise", praise)
    graph.add_edge(START, "desk")
    graph.add_edge("desk", "praise")
    graph.add_edge("praise", END)
    return graph.compile()
"""

RETRIES = """
def retry(model):
    agent = create_agent(model, tools=[read_temperature])

    async def desk(state):
        try:
            return await agent.ainvoke(state)
        except Exception:
            return await agent.ainvoke(state)

    graph = StateGraph(MessagesState)
    graph.add_node("desk", desk)
    graph.add_edge(START, "desk")
    graph.add_edge("desk", END)
    return graph.compile()
"""


@pytest.fixture
def pack(tmp_path: Path) -> str:
    """Write a pack whose tool and whose reward give rewards of their own."""
    source = write_pack("giving", tmp_path) / "scenario.py"
    text = source.read_text()
    assert LOOK in text
    assert SCORE in text
    source.write_text(text.replace(LOOK, GIVES).replace(SCORE, CHECKS))
    return str(source.parent)


def run(pack: str, folder: Path, *replies: Reply, **settings: object) -> Trajectory:
    """Run one rollout whose policy gives ``replies`` in turn."""

    def respond(request: ChatRequest) -> Reply:
        return replies[sum(m["role"] == "assistant" for m in request.messages)]

    return played(pack, folder, respond, **settings)


def played(
    pack: str, folder: Path, respond: Callable[[ChatRequest], Reply], **settings: object
) -> Trajectory:
    """Run one rollout whose policy answers with ``respond``."""
    [task] = get_scenario(pack).tasks(Split.TRAIN, 0, 1)
    wanted = RolloutRequest("r", task, train=True, group="g", step=1)
    settings = {"framework": "native", "max_attempts": 1, **settings}
    policy = ScriptedPolicy(respond)
    with session(folder, policy, scenario=pack, **settings) as opened:
        [found] = opened.run([wanted], lambda _: None)
    return found


def look(room: str = "hall") -> Reply:
    return Reply(calls=[("read_temperature", {"room": room})])


@pytest.mark.parametrize(
    "framework",
    [
        *("native", "langchain"),
        # Each starts workers that import a framework more.
        pytest.param("autogen", marks=pytest.mark.slow),
        pytest.param("crewai", marks=pytest.mark.slow),
        pytest.param("agent_framework", marks=pytest.mark.slow),
        pytest.param("openai_agents", marks=pytest.mark.slow),
        pytest.param("pydantic_ai", marks=pytest.mark.slow),
    ],
)
def test_a_tool_and_a_check_reward_the_call_before(
    pack: str, tmp_path: Path, framework: str
) -> None:
    found = run(
        pack, tmp_path, look(), look("bath"), Reply("Done."), framework=framework
    )
    assert found.reward is not None, found.reason
    by_call = [call.rewards for call in found.model_calls]
    assert by_call == [{"looked": 0.25}, {"looked": 0.25}, {"checked": 0.5}]
    parts = dict(found.reward_parts)
    assert (parts.pop("looked"), parts.pop("checked")) == (0.5, 0.5)
    assert found.reward == pytest.approx(sum(parts.values()) + 1.0)
    assert Trajectory.from_dict(found.to_dict()) == found


def test_a_call_that_failed_and_was_tried_again_counts_once(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "retrying.py").write_text(f"{GRAPH}\n{RETRIES}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked: list[str] = []

    def respond(request: ChatRequest) -> Reply:
        asked.append(str(request.messages[-1]["role"]))
        if len(asked) == 1:
            raise RuntimeError("busy")
        answers = (look(), look("bath"), Reply("Done."))
        return answers[sum(m["role"] == "assistant" for m in request.messages)]

    settings = {"framework": "langchain", "agent": "retrying:retry"}
    found = played(pack, tmp_path, respond, **settings)
    assert found.reward is not None, found.reason
    assert len(asked) == 4
    by_call = [call.rewards for call in found.model_calls]
    assert by_call == [{"looked": 0.25}, {"looked": 0.25}, {"checked": 0.5}]


def test_each_call_is_credited_with_its_own(pack: str, tmp_path: Path) -> None:
    found = run(pack, tmp_path, look(), Reply("Done."))
    assert found.reward is not None, found.reason
    shared = found.reward - 0.75
    given = get_scenario(pack).broadcast_rewards(found)
    assert given == pytest.approx([shared + 0.25, shared + 0.5])


def test_a_node_of_a_graph_rewards_the_call_before(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "praising.py").write_text(GRAPH)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = {"framework": "langchain", "agent": "praising:build"}
    found = run(pack, tmp_path, look(), Reply("Done."), **settings)
    assert found.reward is not None, found.reason
    assert found.model_calls[-1].rewards == {"praised": 0.125, "checked": 0.5}


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nan", "agentgym.reward got nan for 'looked'"),
        ("thread", "got 0.25 for 'looked' outside of a rollout"),
    ],
)
def test_a_reward_that_cannot_count_drops_the_rollout_by_name(
    pack: str, tmp_path: Path, place: str, said: str
) -> None:
    found = run(pack, tmp_path, look(place), Reply("Done."))
    assert found.reward is None
    assert found.reason is not None
    assert found.reason.kind == "reward"
    assert said in str(found.reason)


def test_outside_a_rollout_nothing_happens() -> None:
    agentgym.reward(1.0, name="anything")
    agentgym.reward(float("nan"), name="")
