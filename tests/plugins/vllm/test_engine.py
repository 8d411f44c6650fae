"""The engine with a process that plays vLLM: versions, sleep, and what goes wrong."""

import asyncio
import json
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.engines.base import TrainedToken, TrainingBatch, TrainingSequence
from agentgym.errors import CheckpointError, EngineError
from agentgym.plugins.vllm import server
from agentgym.plugins.vllm.engine import VllmEngine, VllmPolicy
from agentgym.train.batch import merged
from tests.plugins.vllm.conftest import Played, config
from tests.plugins.vllm.test_log import AFTERWARDS, MEMORY
from tests.processes import processes_of

type Engines = Callable[..., VllmEngine]


ASKED = ChatRequest(
    [{"role": "user", "content": "What is open?"}], max_tokens=12, seed=3
)


def ask(policy: VllmPolicy, request: ChatRequest = ASKED) -> ChatResult:
    async def once() -> ChatResult:
        try:
            return await policy.chat(request)
        finally:
            await policy.release()

    return asyncio.run(once())


def batch_of(told: ChatResult, advantage: float = 1.0) -> TrainingBatch:
    """Return a batch whose every sampled token is trained."""
    prompt, response = told.prompt_ids, told.response_ids
    trained = [
        TrainedToken(len(prompt) + i, logprob, advantage)
        for i, logprob in enumerate(told.logprobs)
    ]
    return TrainingBatch([TrainingSequence("", 0, prompt + response, trained)])


def kinds(played: Played) -> list[str]:
    return [line["call"] for line in played.seen()]


@pytest.mark.slow
def test_versions_sleep_and_checkpoints(
    played: Played, engines: Engines, tmp_path: Path
) -> None:
    engine = engines(learning_rate=0.02)
    policy = engine.policy
    assert kinds(played) == ["start", "sleep"]
    with engine.sampling():
        assert (policy.model_name, policy.version) == ("agentgym-v0", 0)
        first = ask(policy)
        assert first.model_version == 0
    metrics = engine.update(batch_of(first))
    assert metrics.step == engine.step == 1
    assert metrics.logprob_gap < 1e-3
    with engine.sampling():
        assert (policy.model_name, policy.version) == ("agentgym-v1", 1)
        second = ask(policy)
        policy.become("agentgym-v0", 0)
        with pytest.raises(EngineError, match="status 404"):
            ask(policy)
        policy.become("agentgym-v1", 1)
    gap = engine.update(batch_of(second)).logprob_gap
    assert gap < 1e-3  # the weights that it answered with are the ones that were sent
    with engine.sampling():  # and other ones would have been seen
        ask(policy)
    with pytest.raises(EngineError, match="nats off the learner's"):
        engine.update(batch_of(first, -1.0))
    assert engine.step == 2

    # Nothing was sent or asked while it slept, and no error leaves it awake.
    with pytest.raises(ZeroDivisionError), engine.sampling():
        assert 1 / 0
    awake = ["wake_up", "sleep"]
    load = ["load", "unload", "reset"]
    assert kinds(played) == [
        *("start", "sleep", "wake_up", "load", "reset", "complete", "sleep"),
        *("wake_up", *load, "complete", "complete", "sleep"),
        *("wake_up", *load, "complete", "sleep"),
        *("wake_up", *load, "sleep"),
    ]

    # A checkpoint brings weights back; their name is new, for prefixes are cached.
    place = tmp_path / "checkpoint"
    place.mkdir()
    engine.save_checkpoint(place)
    engine.load_checkpoint(place)
    with engine.sampling():
        assert policy.model_name == "agentgym-v2-3"
        assert policy.version == 2
    with engine.sampling():
        pass
    assert kinds(played)[-2:] == awake
    exported = tmp_path / "exported"
    engine.export(exported)
    assert (exported / "adapter_model.safetensors").exists()
    assert (exported / "tokenizer.json").exists()
    engine.close()
    assert processes_of(played.mark) == []

    other = engines(lora_rank=4)
    with pytest.raises(CheckpointError, match="Resume with the settings"):
        other.load_checkpoint(place)
    assert other.step == 0


@pytest.mark.slow
def test_imitated_answers_are_learned_here_and_sent_before_vllm_samples(
    played: Played, engines: Engines
) -> None:
    """Slow: it starts a process that plays vLLM."""
    engine = engines(warm_start=True)
    call = RequestedCall(id="call_1", name="read", arguments='{"path": "b"}')
    with engine.sampling():
        before = ask(engine.policy)
    imitation = engine.imitation()
    written = imitation.write(ASKED, "", [call])
    batch = batch_of(written)
    losses = [imitation.learn(batch, 1.0) for _ in range(40)]

    assert losses[-1] < losses[0] - 0.5
    assert imitation.measure(batch) == pytest.approx(losses[-1], abs=0.5)
    with engine.sampling():
        assert engine.policy.model_name == "agentgym-v0-2"
        after = ask(engine.policy)
    assert engine.step == after.model_version == 0
    assert after.logprobs != before.logprobs
    assert engine.update(batch_of(after)).logprob_gap < 1e-3


@pytest.mark.slow
def test_a_server_that_ignores_adapters_is_found_before_it_is_asked(
    played: Played, engines: Engines
) -> None:
    played.script(**{"ignores adapters": True})
    engine = engines()
    same = "the same with an adapter as without"
    with pytest.raises(EngineError, match=same), engine.sampling():
        pytest.fail("nothing may be sampled")
    assert kinds(played) == ["start", "sleep", "wake_up", "sleep"]


@pytest.mark.slow
def test_nothing_is_left_of_a_server_whose_guard_was_killed(
    played: Played, engines: Engines
) -> None:
    policy = engines().policy
    (guard,) = [
        process
        for process in psutil.Process().children()
        if "supervise.py" in " ".join(process.cmdline())
    ]
    guard.kill()
    assert processes_of(played.mark) == []
    until = time.monotonic() + 30
    while not policy.failure:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "vLLM has ended" in policy.failure


@pytest.mark.slow
def test_two_gpus_are_not_used_by_turns(played: Played, engines: Engines) -> None:
    engine = engines(**{"gpus.per_node": 2})
    with engine.sampling():
        assert ask(engine.policy).response_ids
    engine.update(TrainingBatch())
    with engine.sampling():
        assert engine.policy.model_name == "agentgym-v1"
    assert played.seen("start")[0]["devices"] == "1"
    assert kinds(played)[1:] == ["load", "reset", "complete", "load", "unload", "reset"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ({"refuses": "/v1/load_lora_adapter"}, "refuses /v1/load_lora_adapter: 500"),
        ({"forgets adapters": True}, "was given the adapter 'agentgym-v0'"),
        ({"sleeps on": True}, "does not wake up"),
        ({"die at": {"/wake_up": 1}}, "vLLM has ended"),
        ({"die at": {"/v1/load_lora_adapter": 1}}, "Lower gpus.memory_share"),
    ],
    ids=str,
)
def test_what_goes_wrong_is_told(
    played: Played, engines: Engines, script: dict[str, Any], why: str
) -> None:
    played.script(**script)
    engine = engines()
    with pytest.raises(EngineError) as told, engine.sampling():
        pytest.fail("nothing may be sampled")
    assert why in str(told.value)
    if "die at" not in script:
        assert kinds(played)[-1] == "sleep"
    else:
        assert "vLLM has ended" in engine.policy.failure or engine.policy.failure == ""


@pytest.mark.slow
def test_a_busy_server_is_asked_again(
    played: Played, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_BACKOFF_S", 0.01)
    played.script(busy={"/v1/load_lora_adapter": 3, "/wake_up": 2})
    with engines().sampling():
        assert kinds(played) == ["start", "sleep", "wake_up", "load", "reset"]


@pytest.mark.slow
def test_the_error_that_ended_a_start_is_shown(played: Played, tmp_path: Path) -> None:
    played.script(**{"does not start": MEMORY + AFTERWARDS})
    with pytest.raises(EngineError) as told:
        VllmEngine.create(config(tmp_path))
    words = str(told.value)
    log = tmp_path / "coding-vllm.log"
    assert "vLLM ended while it started" in words
    assert f"Its log, {log}, says: ValueError: No available memory" in words
    assert "Raise gpus.memory_share, or lower vllm.max_model_len." in words
    assert "nanobind" not in words
    assert processes_of(played.mark) == []


@pytest.mark.slow
def test_a_port_that_somebody_took_meanwhile_is_not_tried_again(
    played: Played, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = server.free_port
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(
            server, "free_port", lambda wanted: ports.pop() if ports else free(wanted)
        )
        with engines().sampling():
            assert ports == []
    assert len(played.seen("start")) == 2


@pytest.mark.slow  # starts a server and loads a model
def test_an_answer_in_a_form_is_learned_from_its_own_distribution(
    engines: Engines,
) -> None:
    route = {"enum": ["billing", "tech"]}
    parameters = {"type": "object", "properties": {"to": route}, "required": ["to"]}
    function = {"name": "Route", "description": "Who is next", "parameters": parameters}
    request = ChatRequest(
        [{"role": "user", "content": "My bill is wrong."}],
        [{"type": "function", "function": function}],
        wants_call=True,
        one_call=True,
        form="Route",
        max_tokens=80,
        seed=3,
    )
    engine = engines()
    with engine.sampling():
        said = ask(engine.policy, request)
    [call] = said.tool_calls
    assert json.loads(call.arguments)["to"] in ("billing", "tech")
    asked = ModelCall(
        tools=request.tools,
        prompt_ids=said.prompt_ids,
        response_ids=said.response_ids,
        logprobs=said.logprobs,
        grammar=said.grammar,
    )
    allowed = engine.allowed(asked)
    assert allowed is not None
    places = {at: one for at, one in enumerate(allowed) if one.count > 1}
    assert (
        engine.update(TrainingBatch(merged([(asked, places, 1.0)], 0))).logprob_gap
        < 1e-3
    )
    free = dict.fromkeys(places)
    with pytest.raises(EngineError, match="nats"):  # not the distribution without it
        engine.update(TrainingBatch(merged([(asked, free, 1.0)], 0)))
