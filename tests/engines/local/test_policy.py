"""The policy: exact log-probabilities, many at once, streams, ends."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.engines.local.decoding.decoder import DecodingJob, Generation
from agentgym.engines.local.decoding.forward import BatchForward
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.policy import LocalPolicy
from agentgym.errors import ContextLengthError, EngineError
from agentgym.models.chat_template import ChatTemplate
from tests.engines.conftest import TEMPLATE, make_tokenizer
from tests.engines.local.rollouts import TOOLS, chat


@pytest.fixture(scope="module")
def loaded(model_folder: Path) -> LoadedModel:
    return load_model(str(model_folder), device="cpu", rank=None, seed=0)


@pytest.fixture(scope="module")
def policy(loaded: LoadedModel) -> Iterator[LocalPolicy]:
    policy = LocalPolicy(loaded)
    yield policy
    policy.close()


@pytest.fixture(scope="module")
def deterministic(loaded: LoadedModel) -> Iterator[LocalPolicy]:
    policy = LocalPolicy(loaded, deterministic=True)
    yield policy
    policy.close()


def request(seed: int, text: str = "read the file", **changes: Any) -> ChatRequest:
    given = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": text},
        ],
        "tools": TOOLS,
        "max_tokens": 12,
        "seed": seed,
    }
    return ChatRequest(**{**given, **changes})


def model_logprobs(loaded: LoadedModel, result: ChatResult, temperature: float) -> Any:
    ids = torch.tensor([result.prompt_ids + result.response_ids])
    with torch.no_grad():
        logits = loaded.model(ids).logits[0, len(result.prompt_ids) - 1 : -1]
    logprobs = torch.log_softmax(logits / temperature, -1)
    return logprobs.gather(-1, torch.tensor(result.response_ids)[:, None])[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_the_models_own(
    policy: LocalPolicy, loaded: LoadedModel, temperature: float
) -> None:
    """Through shared heads, continued sessions and 200 requests at once."""
    texts = ["read the file", "find it", "open status a b c d " * 3]
    requests = [
        request(i, texts[i % 3], session=f"lp{i}", temperature=temperature)
        for i in range(200)
    ]
    for turn in range(2):
        results = chat(policy, requests)
        for result in results:
            expected = model_logprobs(loaded, result, temperature)
            assert torch.allclose(torch.tensor(result.logprobs), expected, atol=1e-4)
        if turn == 0:
            requests = list(map(_next_turn, requests, results))


def _next_turn(old: ChatRequest, result: ChatResult) -> ChatRequest:
    messages = [
        *old.messages,
        {"role": "assistant", "content": result.content},
        {"role": "tool", "content": "2 open"},
    ]
    return ChatRequest(
        messages=messages,
        tools=old.tools,
        temperature=old.temperature,
        max_tokens=old.max_tokens,
        seed=old.seed + 1000,
        session=old.session,
    )


def test_a_prompt_that_comes_again_is_answered_from_the_weights_of_now(
    model_folder: Path,
) -> None:
    loaded = load_model(str(model_folder), device="cpu", rank=0, seed=0)
    policy = LocalPolicy(loaded)
    asked = [request(seed, "close it", session=f"again{seed}") for seed in range(3)]

    @torch.no_grad()
    def grow() -> None:
        for parameter in loaded.model.parameters():
            parameter.mul_(1.1)

    try:
        for _ in range(2):
            for one in [*asked, *reversed(asked)]:
                result = chat(policy, [one])[0]
                expected = model_logprobs(loaded, result, 1.0)
                logprobs = torch.tensor(result.logprobs)
                assert torch.allclose(logprobs, expected, atol=1e-4)
            policy.decoder.between_responses(grow)
    finally:
        policy.close()


@pytest.mark.slow
def test_sampling_follows_the_models_distribution(
    policy: LocalPolicy, loaded: LoadedModel
) -> None:
    results = chat(policy, [request(i, max_tokens=1) for i in range(2000)])
    with torch.no_grad():
        logits = loaded.model(torch.tensor([results[0].prompt_ids])).logits[0, -1]
    expected = torch.softmax(logits, -1)
    counts = torch.bincount(
        torch.tensor([r.response_ids[0] for r in results]), minlength=len(expected)
    )
    distance = float((counts / 2000 - expected).abs().sum()) / 2
    reference = torch.multinomial(expected, 2000, replacement=True)
    reference_counts = torch.bincount(reference, minlength=len(expected))
    usual = float((reference_counts / 2000 - expected).abs().sum()) / 2
    assert distance < 1.3 * usual


def test_temperature_zero_is_greedy(policy: LocalPolicy, loaded: LoadedModel) -> None:
    results = chat(policy, [request(i, temperature=0.0) for i in range(3)])

    assert len({tuple(r.response_ids) for r in results}) == 1
    ids = torch.tensor([results[0].prompt_ids + results[0].response_ids])
    with torch.no_grad():
        logits = loaded.model(ids).logits[0, len(results[0].prompt_ids) - 1 : -1]
    assert results[0].response_ids == logits.argmax(-1).tolist()


def test_batch_mates_change_nothing_in_deterministic_mode(
    deterministic: LocalPolicy,
) -> None:
    """Bit for bit: ids and log-probabilities."""
    alone = [chat(deterministic, [request(i)])[0] for i in range(4)]
    texts = ["find", "open status a b c d " * 8, "look up order 1 2 3"]
    mates = [request(100 + i, texts[i % 3], max_tokens=30) for i in range(60)]
    together = chat(
        deterministic, [*mates[:30], *(request(i) for i in range(4)), *mates[30:]]
    )[30:34]

    for one, other in zip(alone, together, strict=True):
        assert one.response_ids == other.response_ids
        assert one.logprobs == other.logprobs


def test_drafts_save_steps_and_change_no_token(
    loaded: LoadedModel, deterministic: LocalPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked a second time, the policy drafts what it said before."""
    passes: list[list[int]] = []
    predict = BatchForward.predict

    def counted(self: BatchForward, ids: Any, *args: Any, **rest: Any) -> Any:
        if "only_last" not in rest:
            passes.append([len(row) for row in ids])
        return predict(self, ids, *args, **rest)

    asked = [request(seed, max_tokens=40) for seed in range(8)]
    others = [request(seed + 100, max_tokens=40) for seed in range(8)]
    plain = chat(deterministic, asked + others)
    monkeypatch.setattr(BatchForward, "predict", counted)
    drafting = LocalPolicy(loaded)
    found, steps = [], []
    for requests in (asked, asked, others):
        passes.clear()
        found.append(chat(drafting, requests))
        steps.append(sum(map(len, passes)))  # of every answer, whatever met in a batch
        assert all(1 <= count <= 8 for counts in passes for count in counts)
    drafting.close()

    for results, expected in zip(found, (plain[:8], plain[:8], plain[8:]), strict=True):
        for result, other in zip(results, expected, strict=True):
            assert result.response_ids == other.response_ids
            assert result.finish_reason == other.finish_reason
            assert result.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    tokens = sum(len(result.response_ids) for result in plain[:8])
    assert steps[1] < tokens / 4 < steps[0]


def test_sampling_ends_at_a_stop_text(policy: LocalPolicy) -> None:
    free = request(3, "find it", max_tokens=30, tools=[])
    whole = chat(policy, [free])[0]
    stop = (whole.content or "")[2:4]
    cut = chat(policy, [replace(free, stop=(stop,))])[0]
    assert cut.finish_reason == "stop"
    assert len(cut.response_ids) < len(whole.response_ids)
    assert cut.response_ids == whole.response_ids[: len(cut.response_ids)]
    assert (cut.content or "").count(stop) == 1


@pytest.mark.parametrize("drafted", [0, 7])
def test_a_stream_adds_up_to_the_content_and_ends_with_the_result(
    drafted: int, policy: LocalPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without drafts to the bit; with them in other shapes, so up to rounding."""
    monkeypatch.setattr(policy.decoder, "drafted", drafted)
    chat(policy, [request(0)])  # so that all below find the prompt computed

    async def collect(seed: int) -> list[str | ChatResult]:
        return [piece async for piece in policy.stream(request(seed))]

    for seed in range(8):
        *pieces, result = asyncio.run(collect(seed))
        assert isinstance(result, ChatResult)
        assert all(isinstance(p, str) for p in pieces)
        shown = "".join(p for p in pieces if isinstance(p, str))
        assert shown == (result.content or "")
        again = chat(policy, [request(seed)])[0]
        if drafted:
            assert again.logprobs == pytest.approx(result.logprobs, abs=1e-5)
            again = replace(again, logprobs=result.logprobs)
        assert result == again


def test_a_stream_that_is_left_frees_its_place(policy: LocalPolicy) -> None:
    async def leave() -> None:
        async for _ in policy.stream(request(1, max_tokens=300)):
            break

    asyncio.run(leave())
    assert chat(policy, [request(2)])[0].response_ids


def test_length_is_a_finish_reason_and_the_context_is_kept(policy: LocalPolicy) -> None:
    long = "a b c d " * 52
    result = chat(policy, [request(1, long, max_tokens=4000)])[0]

    assert len(result.prompt_ids) + len(result.response_ids) <= 512
    assert result.finish_reason == (
        "length" if result.response_ids[-1] != 1 else "stop"
    )


def test_a_prompt_that_leaves_no_room_is_refused_with_numbers(
    policy: LocalPolicy,
) -> None:
    with pytest.raises(ContextLengthError, match=r"\d+ tokens .* holds 512"):
        chat(policy, [request(1, "read the file " * 300)])


def test_a_call_within_reasoning_that_the_prompt_began_is_not_made(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace(
        "<|assistant|>{%", "<|assistant|><think>{%"
    )
    policy = LocalPolicy(
        replace(loaded, tokenizer=tokenizer, template=ChatTemplate("m", tokenizer))
    )
    thought = 'Perhaps <tool_call>{"name": "read", "arguments": {}}</tool_call>'
    ids = tokenizer.encode(thought)

    def think(job: DecodingJob) -> None:
        job.future.set_result(Generation(ids, [-1.0] * len(ids), "length", 0))

    monkeypatch.setattr(policy.decoder, "submit", think)
    result = chat(policy, [request(1)])[0]
    policy.close()

    assert (result.content, result.tool_calls) == (None, [])
    assert result.reasoning == thought


@pytest.mark.parametrize("written", ['{"name": "read", "arguments": {}}', '{"name'])
def test_where_no_tool_is_offered_nothing_is_a_call(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    policy = LocalPolicy(loaded)
    call = f"<tool_call>{written}</tool_call>"
    ids = loaded.tokenizer.encode(call)

    def write(job: DecodingJob) -> None:
        job.future.set_result(Generation(ids, [-1.0] * len(ids), "stop", 0))

    monkeypatch.setattr(policy.decoder, "submit", write)
    plain, offered = chat(policy, [request(1, tools=[]), request(2)])
    policy.close()

    assert (plain.content, plain.tool_calls, plain.finish_reason) == (call, [], "stop")
    assert offered.content is None
    assert len(offered.tool_calls) == 1


def test_a_closed_policy_refuses(loaded: LoadedModel) -> None:
    policy = LocalPolicy(loaded)
    policy.close()

    with pytest.raises(EngineError, match="closed"):
        chat(policy, [request(1)])


def test_work_that_fails_raises_and_sampling_goes_on(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = LocalPolicy(loaded)

    with pytest.raises(ZeroDivisionError):
        policy.decoder.between_responses(lambda: 1 // 0)
    for step in ("_forget", "_refresh"):  # before the work, and after it
        with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
            patch.setattr(policy.decoder, step, lambda: 1 // 0)
            policy.decoder.between_responses(lambda: None)

    assert chat(policy, [request(1)])
    policy.close()
    with pytest.raises(EngineError, match="closed"):
        policy.decoder.between_responses(lambda: None)


def test_an_interrupted_wait_ends_the_work(loaded: LoadedModel) -> None:
    policy = LocalPolicy(loaded)
    started, heard = threading.Event(), threading.Event()
    ended_early: list[bool] = []

    def work() -> None:
        started.set()
        ended_early.append(loaded.interrupted.wait(60))

    class Stop(BaseException):
        pass

    def interrupt(number: int, frame: object) -> None:
        if not heard.is_set():
            heard.set()
            raise Stop

    old = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.get_ident()

    def send() -> None:
        """Send it until it is heard: one that comes just before a wait is not."""
        assert started.wait(20)
        while not heard.wait(0.1):
            signal.pthread_kill(main, signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(Stop):
            policy.decoder.between_responses(work)
    finally:
        sender.join()  # first: without a handler the signal ends the process
        signal.signal(signal.SIGUSR1, old)
    assert policy.decoder.between_responses(loaded.interrupted.is_set) is False
    assert ended_early == [True]
    policy.close()


def test_closing_fails_what_runs(loaded: LoadedModel) -> None:
    policy = LocalPolicy(loaded)

    async def close_while_running() -> list[ChatResult | BaseException]:
        many = [request(i, max_tokens=450) for i in range(300)]
        running = [asyncio.create_task(policy.chat(r)) for r in many]
        await asyncio.sleep(0.02)
        await asyncio.to_thread(policy.close)
        return await asyncio.gather(*running, return_exceptions=True)

    ends = asyncio.run(close_while_running())
    failed = [end for end in ends if isinstance(end, BaseException)]
    assert failed
    assert all(isinstance(e, EngineError) and "closed" in str(e) for e in failed)


LET_GO = """
import asyncio
import sys
from agentgym.core.policy import ChatRequest
from agentgym.engines.local.policy import LocalPolicy

policies = [LocalPolicy.load(sys.argv[1]) for _ in range(8)]
asked = ChatRequest(messages=[{"role": "user", "content": "Hello"}], max_tokens=2)
for policy in policies:
    asyncio.run(policy.chat(asked))
del policy, policies
"""


@pytest.mark.slow
def test_a_process_may_end_as_it_lets_policies_go(model_folder: Path) -> None:
    """In a process of its own, whose end is the point."""
    command = [sys.executable, "-c", LET_GO, str(model_folder)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
