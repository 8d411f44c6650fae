"""The warm start of a tasks file: its expected calls are what is imitated."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentgym import Scenario, Trainer, TrainingConfig
from agentgym.core.config import TrainingConfig as Config
from agentgym.core.policy import ChatRequest
from agentgym.engines.base import Engine
from agentgym.engines.scripted import Reply
from agentgym.errors import ScenarioError
from agentgym.train import loop
from agentgym.train.result import TrainingResult
from agentgym.train.warm_start import fine_tuning
from tests.scripted_engine import ScriptedEngine

TOOLS = '''
"""Tools of a counter where keys are kept; the real ones must not run."""


def find_room(guest: str) -> dict[str, str]:
    """Look up the room of a guest."""
    raise RuntimeError("a real tool ran")


def hand_out_key(room: str, note: str = "") -> str:
    """Hand out the key of a room."""
    raise RuntimeError("a real tool ran")


def close_counter(reason: str) -> str:
    """Close the counter."""
    raise RuntimeError("a real tool ran")


TOOLS = [find_room, hand_out_key, close_counter]


def check(task, calls, state):
    return [call.name for call in calls] == ["find_room", "hand_out_key"]
'''
GUESTS = ["Amsel", "Birke", "Clemens", "Distel", "Erle", "Falke", "Ginster", "Igel"]


def line(number: int, **more: Any) -> dict[str, Any]:
    """Return a request whose second call needs what the first one tells."""
    guest, room = f"{GUESTS[number % 8]}{number}", f"R{100 + number}"
    find = {"tool": "find_room", "args": {"guest": guest}, "answer": {"room": room}}
    note = {"one_of": ["given", "handed out"]}
    hand = {"tool": "hand_out_key", "args": {"room": room, "note": note}}
    expect = [find, {"any": [hand, {"tool": "close_counter", "args": {"reason": ""}}]}]
    splits = ["train"] * 10 + ["validation"] * 3 + ["test"] * 3
    made = {"instruction": f"The key for {guest}, please.", "expect": expect}
    return {**made, "split": splits[number], **more}


class Learner(ScriptedEngine):
    """Does what was imitated once anything was."""

    def __init__(self) -> None:
        super().__init__(self._answer)

    def _answer(self, request: ChatRequest) -> Reply:
        results = [m for m in request.messages if m["role"] == "tool"]
        if not self.imitated or len(results) == 2:
            return Reply("Done.")
        if results:
            room = json.loads(str(results[0]["content"]))["room"]
            return Reply(calls=[("hand_out_key", {"room": room, "note": "given"})])
        guest = str(request.messages[1]["content"]).split()[3].strip(",")
        return Reply(calls=[("find_room", {"guest": guest})])


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Learner]:
    """Let a script learn, and note every engine that was made."""
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fine_tuning, "LEAST_UPDATES", 2)
    made: list[Learner] = []

    def create(config: Config) -> Engine:
        made.append(Learner())
        return made[-1]

    monkeypatch.setattr(loop, "create_engine", create)
    return made


def train(lines: Sequence[dict[str, Any]], **how: Any) -> TrainingResult:
    """Train with a warm start on a file of these lines."""
    Path("key_tools.py").write_text(TOOLS)
    Path("keys.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    scenario = Scenario.from_tools("key_tools:TOOLS", tasks="keys.jsonl", **how)
    settings: dict[str, Any] = {"framework": "native", "warm_start": True, "yes": True}
    settings |= {"episodes": 4, "group_size": 2, "tasks_per_step": 2, "eval_samples": 1}
    config = TrainingConfig.create(**settings, tracker="none", name="run")
    return Trainer(config).train(scenario)


def imitated(engine: Learner) -> str:
    """Return every token that was learned, as text."""
    return "".join(
        bytes(sequence.ids[token.position] for token in sequence.trained).decode()
        for batch in engine.imitated
        for sequence in batch.sequences
    )


@pytest.mark.slow
def test_expected_calls_are_played_and_imitated(engines: list[Learner]) -> None:
    result = train([line(number) for number in range(16)])

    assert result.imitated is not None
    assert (result.imitated.tasks, result.imitated.failed) == (10, {})
    learned = imitated(engines[0])
    call = '{"name": "hand_out_key", "arguments": {"room": "R107", "note": "given"}}'
    assert call in learned
    assert "R111" not in learned  # of validation
    assert "R114" not in learned  # of the test
    assert result.baseline.pass_1.value == 0.0
    assert result.warm_start is not None
    assert result.warm_start.pass_1.value == result.metrics.pass_1.value == 1.0


@pytest.mark.slow
def test_lines_without_expected_calls_are_left_out(engines: list[Learner]) -> None:
    """A check function scores them; which calls they need is not known."""
    lines = [line(n, **({"expect": []} if n % 2 else {})) for n in range(16)]

    result = train(lines, check="key_tools:check")

    assert result.imitated is not None
    assert result.imitated.tasks == 5
    assert "R107" not in imitated(engines[0])


def test_a_file_without_any_is_refused(engines: list[Learner]) -> None:
    lines = [line(number, expect=[]) for number in range(16)]

    with pytest.raises(ScenarioError, match="in a tasks file: `expect` of its lines"):
        train(lines, check="key_tools:check")

    assert not engines
