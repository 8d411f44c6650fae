"""Secrets are planted, things are run, and every byte that was written is searched."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from agentgym.cli.main import main
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from agentgym.plugins.lightning.service import GatewayService
from agentgym.rollout.record import stored_trajectories
from agentgym.rollout.session import gateway_settings
from agentgym.rollout.store.reader import StoreReader
from agentgym.rollout.trajectory_file import read_jsonl
from agentgym.security import audit
from agentgym.security.redaction import Redactor
from agentgym.train import loop
from tests.rollout.stub_server import Handler, StubServer, completion
from tests.scripted_engine import ScriptedEngine
from tests.security import planted
from tests.security.planted import EVERYTHING, leaks

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a ``.env`` and a scenario that tells secrets."""
    monkeypatch.setenv(planted.VARIABLE, planted.ENV)
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AGENTGYM_SECRETS", raising=False)
    monkeypatch.delenv(planted.DOTENV_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pack = tmp_path / "scenarios" / "planted"
    pack.mkdir(parents=True)
    (pack / "scenario.py").write_text(planted.PACK)
    (tmp_path / "runs").mkdir()
    return tmp_path


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedEngine]:
    """Let a script answer, that repeats what it was told in its calls."""
    made: list[ScriptedEngine] = []

    def answer(request: ChatRequest) -> Reply:
        last = request.messages[-1]
        if last["role"] == "tool":
            return Reply(f"I saw {last['content']}")
        return Reply(calls=[("look", {"what": str(last["content"])})])

    def create(config: TrainingConfig) -> ScriptedEngine:
        made.append(ScriptedEngine(answer))
        return made[-1]

    monkeypatch.setattr(loop, "create_engine", create)
    return made


@pytest.fixture
def dotenv(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a ``.env`` whose variables are gone again after the test."""
    file = place / ".env"
    file.write_text(f"{planted.DOTENV_VARIABLE}={planted.DOTENV}\n")
    for name in (planted.DOTENV_VARIABLE, "AGENTGYM_SECRETS"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    return file


def train(*more: str) -> int:
    words = "train planted --framework native --episodes 8 --name run --yes --debug"
    settings = Path("settings.yaml")
    settings.write_text(
        "group_size: 2\ntasks_per_step: 4\ntest_tasks: 4\nearly_stop: false\n"
        "workers: 1\nmax_attempts: 1\ntracker: tensorboard\n"
    )
    return main([*words.split(), "--config", str(settings), *more])


@pytest.mark.slow
def test_a_training_writes_no_secret(
    place: Path, dotenv: Path, engines: list[ScriptedEngine], capfd: Out
) -> None:
    assert train() == 0
    assert main(["runs", "show", "run"]) == 0
    assert main(["runs", "audit", "run", "--last", "0"]) == 0
    said = capfd.readouterr()
    assert leaks(place, said.out, said.err) == set()
    told = (place / "runs/run/workers.log").read_text()
    assert "written: [redacted: SHOP_API_KEY] [redacted: SHOP_THING]" in told
    [batch, *_] = engines[0].batches
    seen = b"".join(bytes(sequence.ids) for sequence in batch.sequences)
    assert EVERYTHING.encode() in seen  # what is trained on is what the policy saw
    dropped = [line for line in _metrics(place) if line["dropped"]]
    assert dropped, "a tool and a reward were to crash"


@pytest.mark.slow
def test_without_redaction_the_search_finds_them(
    place: Path,
    dotenv: Path,
    engines: list[ScriptedEngine],
    monkeypatch: pytest.MonkeyPatch,
    capfd: Out,
) -> None:
    monkeypatch.setattr(Redactor, "finds", lambda self, text: False)
    assert train() == 0
    said = capfd.readouterr()
    found = leaks(place / "runs", said.err)
    for file in ("rollouts.db", "workers.log"):
        for secret in planted.ALL:
            assert any(f"{secret} in" in each and file in each for each in found)


@pytest.mark.slow
def test_a_private_run_writes_no_text_at_all(
    place: Path,
    dotenv: Path,
    engines: list[ScriptedEngine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Redactor, "finds", lambda self, text: False)
    assert train("--set", "private=true") == 0
    assert leaks(place / "runs") == set()
    assert not (place / "runs/run/workers.log").exists()
    [batch, *_] = engines[0].batches
    seen = b"".join(bytes(sequence.ids) for sequence in batch.sequences)
    assert EVERYTHING.encode() in seen  # training had all of it
    store = StoreReader(place / "runs/run/rollouts.db")
    made = [t for t in stored_trajectories(store) if t.reward is not None]
    assert {call.name for each in made for call in each.get_tool_calls()} == {"look"}
    assert all(call.token_counts != (0, 0) for t in made for call in t.model_calls)


@pytest.mark.slow
def test_a_run_that_fails_says_why_without_secrets(
    place: Path,
    dotenv: Path,
    engines: list[ScriptedEngine],
    monkeypatch: pytest.MonkeyPatch,
    capfd: Out,
) -> None:
    monkeypatch.setenv("PLANTED_BROKEN", "1")
    assert train() == 1
    said = capfd.readouterr()
    assert "broken: [redacted: SHOP_API_KEY]" in said.err
    assert leaks(place, said.out, said.err) == set()


def _metrics(place: Path) -> list[dict[str, Any]]:
    lines = (place / "runs/run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_setting_with_a_secret_is_refused(
    place: Path, engines: list[ScriptedEngine], capfd: Out
) -> None:
    assert train("--name", planted.ENV) == 2
    said = capfd.readouterr().err
    assert "Error: name = " in said
    assert "[redacted" in said
    assert "environment variable" in said
    assert leaks(said) == set()
    assert list((place / "runs").iterdir()) == []


async def _refuse(request: web.Request, _: dict[str, Any]) -> web.Response:
    error = {"message": f"Incorrect API key provided: {EVERYTHING}", "code": "bad"}
    return web.json_response({"error": error}, status=401)


async def _page(request: web.Request, _: dict[str, Any]) -> web.Response:
    told = f"<html>{request.headers['Authorization']} {EVERYTHING}</html>"
    return web.Response(status=400, text=told, content_type="text/html")


async def _see(request: web.Request, body: dict[str, Any]) -> web.Response:
    if body["messages"][-1]["role"] == "tool":
        return web.json_response(completion(f"I saw {EVERYTHING}"))
    call = {"name": "look", "arguments": json.dumps({"what": EVERYTHING})}
    asked = {"id": "c1", "type": "function", "function": call}
    message = {"role": "assistant", "content": None, "tool_calls": [asked]}
    return web.json_response(completion(message=message, finish_reason="tool_calls"))


@pytest.mark.parametrize("answer", [_refuse, _page, _see])
def test_an_evaluation_shows_no_secret(
    place: Path,
    dotenv: Path,
    answer: Handler,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Out,
) -> None:
    monkeypatch.setenv("AGENTGYM_API_KEY", planted.ENV)
    with StubServer(answer) as server:
        words = f"eval planted --model {server.endpoint}#m --framework native --debug"
        sizes = "--tasks 2 --save e.json --markdown e.md --json --no-baselines"
        code = main([*words.split(), *sizes.split()])
    said = capfd.readouterr()
    assert code == (0 if answer is _see else 1)
    assert answer is _see or "[redacted: SHOP_API_KEY]" in said.err
    assert leaks(place, said.out, said.err) == set()


def test_rollouts_of_ones_own_are_saved_without_secrets(
    place: Path, dotenv: Path, monkeypatch: pytest.MonkeyPatch, capfd: Out
) -> None:
    monkeypatch.setenv("AGENTGYM_API_KEY", planted.ENV)
    (place / "saved").mkdir()
    tasks = place / "tasks.jsonl"
    tasks.write_text(json.dumps({"instruction": EVERYTHING}) + "\n")
    with StubServer(_see) as server:
        words = f"rollout {tasks} --model {server.endpoint}#m --save saved/t.jsonl"
        assert main([*words.split(), "--tools", "calculator", "--json"]) == 0
    assert main(["rollout", "--show", "saved/t.jsonl"]) == 0
    assert main(["runs", "audit"]) == 0
    said = capfd.readouterr()
    assert leaks(place / "saved", place, said.out, said.err) == set()
    [trajectory] = read_jsonl(place / "saved" / "t.jsonl")
    assert "[redacted: SHOP_API_KEY]" in str(trajectory.steps)
    assert trajectory.model_calls[0].response_ids == []
    assert trajectory.model_calls[0].response_tokens == 1


@pytest.mark.slow
def test_a_gateway_answers_and_records_no_secret(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Out
) -> None:
    monkeypatch.setenv(planted.DOTENV_VARIABLE, planted.DOTENV)
    monkeypatch.setenv("AGENTGYM_SECRETS", planted.DOTENV_VARIABLE)
    data = place / "gateway"
    data.mkdir()
    config = TrainingConfig.create(scenario="planted")
    settings = gateway_settings(config, model_name="m")
    with GatewayService(data / "rollouts.db", settings, config) as service:
        base, key = service.gateway.url, service.gateway.api_key
        with httpx.Client(base_url=base, headers={"X-API-Key": key}) as client:
            answers = [*_requests(client)]
        with httpx.Client(base_url=base) as client:
            wrong = {"Authorization": f"Bearer {planted.ENV}"}
            answers.append(client.get("/api/rollouts/r0", headers=wrong))
    assert {answer.status_code for answer in answers} >= {201, 200, 401}
    assert leaks(data) == set()
    refused = [a.text for a in answers if a.status_code >= 400]
    assert len(refused) >= 3
    assert leaks(*refused) == set()
    said = capfd.readouterr()
    assert leaks(said.out, said.err) == set()
    whats = Counter(entry["what"] for entry in audit.read(data))
    assert whats["refused key"] == 1
    assert whats["gateway"] >= 3


def _requests(client: httpx.Client) -> Iterator[httpx.Response]:
    """Yield the answers to requests that bring secrets in all they have."""
    rollout = {"rollout_id": "r0", "input": {"instruction": EVERYTHING * 200}}
    path = "/api/rollouts/r0/attempt/0"
    reward = {"value": 1.0, "source": EVERYTHING}
    yield client.post("/api/rollouts", json=[rollout])
    yield client.post("/api/rollouts/claim", json={"worker": planted.FORMED})
    yield client.post(
        f"{path}/events", json={"event_type": "told", "data": {"text": EVERYTHING}}
    )
    yield client.post(f"{path}/events", json={"event_type": "reward", "data": reward})
    yield client.post(
        f"{path}/events",
        json={"event_type": "reward", "data": {"value": planted.FORMED}},
    )
    yield client.get(f"/api/rollouts/{planted.FORMED}")
    yield client.post(
        f"{path}/finish",
        json={
            "state": "failed",
            "reason": {"kind": "x", "detail": EVERYTHING},
            "retry": False,
        },
    )
