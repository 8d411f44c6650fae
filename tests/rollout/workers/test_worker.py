"""Workers: whatever an episode does, its rollout ends, with a reason or a reward."""

import re
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.store.records import Rollout
from agentgym.rollout.store.store import Store
from agentgym.scenarios.new_pack import write_pack
from agentgym.scenarios.registry import get_scenario
from tests.rollout.sessions import session

READ = 'return f"{self._known(room)}: {self.degrees[room]} degrees"'
SCORE = "assert isinstance(environment, House)\n"
ODD_ROOMS = """
async def odd(room: str) -> str:
    import asyncio

    if room == "half a pair":
        return "21 \\ud83d degrees"
    if room == "cancelled":
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other
    if room == "deaf":
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)
    if room == "broken":
        raise KeyError("no thermometer")
    if room == "exit":
        raise SystemExit(3)
    return "fine"


ODD_REWARDS = {
    "key": lambda: Reward(0.0, False, {"\\ud83d": 0.0}),
    "error": lambda: int("\\ud83d"),
}
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Write a pack whose tool and whose reward do what the policy names."""
    folder = write_pack("odd", tmp_path)
    source = folder / "scenario.py"
    text = source.read_text().replace("def read_temp", "async def read_temp")
    text = text.replace(READ, "return await odd(room)").replace(
        SCORE,
        f"{SCORE}        said = trajectory.model_calls[-1].content\n"
        "        if said in ODD_REWARDS:\n"
        "            return ODD_REWARDS[said]()\n",
    )
    source.write_text(f"{text}\n{ODD_ROOMS}")
    return folder


def run(pack: Path, folder: Path, *replies: Reply, **settings: object) -> Trajectory:
    """Run one rollout whose policy gives ``replies`` in turn."""

    def respond(request: ChatRequest) -> Reply:
        return replies[sum(m["role"] == "assistant" for m in request.messages)]

    [task] = get_scenario(str(pack)).tasks(Split.TRAIN, 0, 1)
    wanted = RolloutRequest("r", task, train=True, group="g", step=1)
    settings = {"framework": "native", "max_attempts": 1, **settings}
    policy = ScriptedPolicy(respond)
    with session(folder, policy, scenario=str(pack), **settings) as opened:
        [found] = opened.run([wanted], lambda _: None)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework",
    ["native", "langchain", pytest.param("autogen", marks=pytest.mark.slow)],
)
def test_numbers_that_not_everyone_can_read_are_malformed_and_scored(
    pack: Path, tmp_path: Path, framework: str
) -> None:
    odd = ["99999999999999999999", "-9223372036854775809", "NaN", "1e400"]
    arguments = [f'{{"room": "hall", "degrees": {degrees}}}' for degrees in odd]
    asked = Reply(calls=[("set_temperature", raw) for raw in arguments])
    found = run(pack, tmp_path, asked, Reply("Done."), framework=framework)
    assert found.reward is not None, found.reason
    calls = found.get_tool_calls()
    assert [call.outcome for call in calls] == [ToolOutcome.MALFORMED] * len(odd)
    assert [call.arguments for call in calls] == [None] * len(odd)
    written = [call.arguments for call in found.model_calls[0].tool_calls]
    assert written == arguments


@pytest.mark.slow
@pytest.mark.parametrize("room", [r'"hall \ud83d"', "[" * 300 + "]" * 300])
def test_half_a_surrogate_pair_and_deep_nesting_are_malformed_and_scored(
    pack: Path, tmp_path: Path, room: str
) -> None:
    arguments = f'{{"room": {room}}}'
    replies = Reply(calls=[("read_temperature", arguments)]), Reply("Done.")
    found = run(pack, tmp_path, *replies)
    assert found.reward is not None, found.reason
    [call] = found.get_tool_calls()
    assert call.outcome is ToolOutcome.MALFORMED
    assert found.model_calls[0].tool_calls[0].arguments == arguments


def test_the_largest_arguments_that_can_be_recorded_are_taken(
    pack: Path, tmp_path: Path
) -> None:
    arguments = r'{"room": "hall \ud83d\ude00", "degrees": -9223372036854775808}'
    replies = Reply(calls=[("set_temperature", arguments)]), Reply("Done.")
    [call] = run(pack, tmp_path, *replies).get_tool_calls()
    assert call.arguments == {"room": "hall \U0001f600", "degrees": -(2**63)}
    assert call.outcome is ToolOutcome.RAISED  # there is no such room


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["native", "langchain", "autogen"])
def test_half_a_surrogate_pair_in_a_tools_result_is_replaced_and_scored(
    pack: Path, tmp_path: Path, framework: str
) -> None:
    asked = Reply(calls=[("read_temperature", {"room": "half a pair"})])
    found = run(pack, tmp_path, asked, Reply("Done."), framework=framework)
    assert found.reward is not None, found.reason
    [call] = found.get_tool_calls()
    assert call.result == "21 \ufffd degrees"
    assert found.model_calls[1].messages[-1]["content"] == call.result


def test_the_state_at_the_end_is_recorded_as_json(pack: Path, tmp_path: Path) -> None:
    source = pack / "scenario.py"
    state = "{'degrees': self.degrees, 'odd': {1: Exception('no JSON')}}"
    added = f"    def end_state(self):\n        return {state}\n\n    def _known("
    source.write_text(source.read_text().replace("    def _known(", added, 1))
    room = next(iter(get_scenario(str(pack)).tasks(Split.TRAIN, 0, 1)[0].initial_state))
    asked = Reply(calls=[("set_temperature", {"room": room, "degrees": 7})])
    found = run(pack, tmp_path, asked, Reply("Done."))
    assert found.end_state["degrees"][room] == 7
    assert found.end_state["odd"] == {"1": "no JSON"}


@pytest.mark.parametrize(
    "framework",
    ["native", "langchain", pytest.param("autogen", marks=pytest.mark.slow)],
)
def test_contract_2_a_broken_tool_is_no_mistake_of_the_policys(
    pack: Path, tmp_path: Path, framework: str
) -> None:
    asked = Reply(calls=[("read_temperature", {"room": "broken"})])
    found = run(pack, tmp_path, asked, Reply("Done."), framework=framework)
    assert found.status is RolloutStatus.DROPPED
    assert found.reward is None
    told = r"crash: KeyError: 'no thermometer' \(\S*\w+\.py:\d+\)"
    assert re.fullmatch(told, str(found.reason)), found.reason  # where to look


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("key", "crash: its end was refused: .* answered 422"),
        ("error", "invalid literal for int"),
    ],
)
def test_contract_2_an_end_that_is_refused_is_a_dropped_rollout(
    pack: Path, tmp_path: Path, said: str, reason: str
) -> None:
    found = run(pack, tmp_path, Reply(said))
    assert found.status is RolloutStatus.DROPPED
    assert found.reward is None
    assert re.search(reason, str(found.reason)), found.reason


@pytest.mark.parametrize("refusals", [1, 2])
def test_an_end_that_the_gateway_could_not_take_is_tried_again(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    finish, left = Store.finish, [OSError("full")] * refusals

    def refuse(store: Store, *args: Any, **named: Any) -> Rollout:
        if left:
            raise left.pop()
        return finish(store, *args, **named)

    monkeypatch.setattr(Store, "finish", refuse)
    found = run(pack, tmp_path, Reply("Done."), max_attempts=2)
    assert found.reward is not None, found.reason
    assert found.attempt == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "room", "reason"),
    [
        ("native", "cancelled", "cancelled: the agent or its model was cancelled"),
        ("native", "deaf", "timeout: nothing moved for 4 s"),
        ("langchain", "deaf", "timeout: nothing moved for 4 s"),
        ("native", "exit", "crash: RuntimeError: the agent called sys.exit(3)"),
    ],
)
def test_contract_7_what_a_tool_does_to_its_task_ends_its_own_rollout(
    pack: Path, tmp_path: Path, framework: str, room: str, reason: str
) -> None:
    asked = Reply(calls=[("read_temperature", {"room": room})])
    settings = {"rollout_timeout_s": 4.0, "framework": framework}
    found = run(pack, tmp_path, asked, Reply("Done."), **settings)
    assert found.status is RolloutStatus.DROPPED
    assert found.reward is None
    assert str(found.reason) == reason
